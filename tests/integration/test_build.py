"""Installed files load on old systems, export little and need nothing else."""

import os
import re
import subprocess
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

GLIBC_MAX = (2, 17)
GLIBC = re.compile(r"GLIBC_(\d+)\.(\d+)")
# Symbols with a newer version since glibc 2.17: moved, or renamed in headers. Built for
# 2.17 they have their old version, see scripts/release.
MOVED = {
    *("fstat", "fstatat", "lstat", "stat", "__libc_start_main"),
    *("dlclose", "dlopen", "dlsym"),
}
LIBC_PARTS = {
    "libc.so.6",
    "libdl.so.2",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
}

Tool = Callable[[str], str]


@pytest.fixture(scope="module")
def native() -> Path:
    folder = Path(str(files("monarch.native")))
    if not (folder / "libmonarch_shim.so").exists():
        pytest.skip("the project is not installed; run scripts/test")
    return folder


def objdump(tool: Tool, option: str, path: Path) -> list[str]:
    command = [tool("objdump"), option, str(path)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return result.stdout.splitlines()


def newer(tool: Tool, path: Path) -> set[str]:
    """The functions of libc whose version is too new."""
    symbols = objdump(tool, "-T", path)
    assert any(GLIBC.search(line) for line in symbols)
    return {
        line.split()[-1]
        for line in symbols
        if (found := GLIBC.search(line))
        and (int(found.group(1)), int(found.group(2))) > GLIBC_MAX
    }


def test_the_shim_needs_no_symbol_newer_than_glibc_2_17(
    native: Path, tool: Tool
) -> None:
    assert not newer(tool, native / "libmonarch_shim.so")


def test_command_and_data_plane_need_no_function_that_glibc_2_17_lacks(
    native: Path, tool: Tool, monarch_command: Path
) -> None:
    parts = native / "libmonarch.so", monarch_command

    lacking = {name for part in parts for name in newer(tool, part) - MOVED}

    assert not {name for name in lacking if not name.startswith("pthread_")}


def test_the_shim_needs_libc_only(native: Path, tool: Tool) -> None:
    headers = objdump(tool, "-p", native / "libmonarch_shim.so")

    needed = {line.split()[1] for line in headers if "NEEDED" in line}

    assert "libc.so.6" in needed
    assert needed <= LIBC_PARTS


def test_the_shim_has_no_lazily_allocated_thread_storage(
    native: Path, tool: Tool
) -> None:
    symbols = objdump(tool, "-T", native / "libmonarch_shim.so")

    assert not [line for line in symbols if line.endswith("__tls_get_addr")]


def test_the_data_plane_exports_its_own_names_only(native: Path, tool: Tool) -> None:
    symbols = objdump(tool, "-T", native / "libmonarch.so")

    exported = [line.split()[-1] for line in symbols if " g " in line]

    assert "monarch_layout" in exported
    assert not [name for name in exported if not name.startswith("monarch_")]


def test_the_command_is_native(monarch_command: Path) -> None:
    assert os.access(monarch_command, os.X_OK)
    assert monarch_command.read_bytes()[:4] == b"\x7fELF"


def test_no_source_of_the_native_parts_is_installed(native: Path) -> None:
    sources = [p for p in native.rglob("*") if p.suffix in (".c", ".h", ".def", ".map")]

    assert not sources
