"""Findings of `monarch doctor` on the shim, the kernel, limits and the environment."""

import json
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from monarch import doctor
from monarch.config import Config
from monarch.doctor import kernel
from monarch.doctor.findings import (
    Finding,
    Level,
    as_json,
    as_lines,
    is_healthy,
    note,
    ok,
    prevents,
    warning,
)
from monarch.doctor.shim import SHIM, check_here, check_root
from support.compiler import build
from support.roots import make_root

NO_CALL = 9999


def levels(findings: list[Finding]) -> list[str]:
    return [finding.level.value for finding in findings]


def test_findings_that_prevent_are_counted_in_the_first_line() -> None:
    found = [ok("a", "fine"), warning("b", "slow", "hurry"), prevents("c", "no", "yes")]

    assert as_lines(found, "n1")[0] == (
        "n1: Monarch cannot stage here: 1 finding prevents it, 1 warning"
    )
    assert as_lines(found[:2], "n1")[0] == "n1: Monarch can stage here; 1 warning"
    assert (is_healthy(found), is_healthy(found[:2])) == (False, True)


def test_each_finding_has_its_fix_and_80_columns() -> None:
    found = [warning("tiers[0]", "word " * 40, "mend " * 30), note("x", "y")]

    lines = as_lines(found, "n1")

    assert max(map(len, lines)) <= 80
    assert any(line.startswith("          fix: mend mend") for line in lines)
    assert lines[-1] == "note      x: y"


def test_json_has_the_same_findings() -> None:
    found = [warning("b", "slow", "hurry")]

    assert json.loads(json.dumps(as_json(found, "n1"))) == {
        "schema": 1,
        "node": "n1",
        "healthy": True,
        "findings": [
            {"level": "warning", "check": "b", "text": "slow", "fix": "hurry"}
        ],
    }


def test_failed_check_is_reported_and_ends_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> Iterator[Finding]:
        yield ok("kernel", "so far")
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(doctor, "check_kernel", fails)

    found = list(doctor.examine(Config(), os.environ, None))

    checks = [one.check for one in found]
    assert [one.level.value for one in found if one.check == "kernel"] == [
        *("ok", "warning"),
    ]
    assert checks.index("kernel") < checks.index("memory")


# -- the shim -----------------------------------------------------------------------


def test_shim_loads_here() -> None:
    assert list(check_here()) == [ok("shim", "loads in programs of this node")]


def test_shim_loads_here_from_a_path_with_spaces_and_colons(tmp_path: Path) -> None:
    folder = tmp_path / "a b:c"
    folder.mkdir()

    assert levels([*check_here(Path(shutil.copy(SHIM, folder)))]) == ["ok"]


def test_shim_that_does_not_load_prevents_and_the_linker_message_is_shown(
    tmp_path: Path,
) -> None:
    broken = tmp_path / "shim.so"
    broken.write_text("not a library")

    (finding,) = check_here(broken)

    assert finding.level is Level.PREVENTS
    assert "cannot be preloaded" in finding.text
    assert [one.level for one in check_here(tmp_path / "none")] == [Level.PREVENTS]


def test_other_preloaded_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/lib/other.so")

    assert "/lib/other.so" in list(check_here())[-1].text


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of a container whose programs are dynamic."""
    return make_root(tmp_path / "root", "/bin/sh")


def test_shim_loads_in_the_root_of_a_container(root: Path) -> None:
    (finding,) = check_root(root)

    assert finding.level is Level.OK
    assert "the shim loads in /bin/sh, with ld-" in finding.text


def test_links_of_a_container_are_followed_inside_of_it(root: Path) -> None:
    (root / "bin").rename(root / "tools")
    (root / "usr").mkdir()
    (root / "usr" / "bin").symlink_to("/../tools")
    (root / "bin").symlink_to("/usr/bin")

    (finding,) = check_root(root)

    assert "the shim loads in /tools/sh" in finding.text


def test_shim_that_lacks_a_library_in_a_container_prevents(
    root: Path, tmp_path: Path
) -> None:
    source = tmp_path / "needed.c"
    source.write_text("int needed(void) { return 1; }\n")
    words = ["cc", "-shared", "-fPIC"]
    needed = build("libneeded.so", *words, source, "-Wl,-soname,libneeded.so")
    shim = build("needing.so", *words, "-Wl,--no-as-needed", source, needed)

    (finding,) = check_root(root, shim)

    assert finding.level is Level.PREVENTS
    assert "libneeded.so" in finding.text


def test_shim_that_needs_a_newer_c_library_prevents(root: Path, tmp_path: Path) -> None:
    """The dynamic linker reports it, but still succeeds."""
    (tmp_path / "newer.c").write_text("int newer(void) { return 0; }\n")
    (tmp_path / "use.c").write_text(
        "int newer(void); int use(void) { return newer(); }\n"
    )
    (tmp_path / "map").write_text("GLIBC_9.9 { newer; };\n")
    words = ["cc", "-shared", "-fPIC", "-nostdlib"]
    named = ["-Wl,-soname,libc.so.6", f"-Wl,--version-script={tmp_path}/map"]
    newer = build("newer.so", *words, *named, tmp_path / "newer.c")
    shim = build("use.so", *words, tmp_path / "use.c", newer)

    (finding,) = check_root(root, shim)

    assert finding.level is Level.PREVENTS
    assert "GLIBC_9.9" in finding.text


def test_library_that_only_this_machine_has_is_not_one_of_the_container(
    root: Path,
) -> None:
    """The dynamic linker of the container looks in the directories of both."""
    (root / "lib" / "libdl.so.2").unlink()

    (finding,) = check_root(root)

    assert finding.level is Level.PREVENTS
    assert "with the shim, which needs libdl.so.2" in finding.text


def test_container_without_dynamic_programs_prevents(
    root: Path, tmp_path: Path
) -> None:
    source = tmp_path / "static.c"
    source.write_text("int main(void) { return 0; }\n")
    static = build("static", "cc", "-static", source)
    shutil.copy(static, root / "bin" / "sh")

    (finding,) = check_root(root)

    assert finding.level is Level.PREVENTS
    assert "/bin/sh is not a dynamically linked program" in finding.text


@pytest.mark.parametrize(
    "content", [b"", b"#!/bin/dash\n", b"\x7fELF\2" + b"\xff" * 99]
)
def test_file_that_is_no_program_of_this_machine_prevents(
    root: Path, content: bytes
) -> None:
    (root / "bin" / "sh").write_bytes(content)

    assert levels([*check_root(root)]) == ["prevents"]


def test_container_without_a_dynamic_linker_or_programs_prevents(root: Path) -> None:
    shutil.rmtree(root / "lib64")
    (without,) = check_root(root)
    shutil.rmtree(root / "bin")
    (empty,) = check_root(root)

    assert "/bin/sh cannot start: /lib64/ld-" in without.text
    assert (without.level, empty.level) == (Level.PREVENTS, Level.PREVENTS)


def test_places_that_a_container_lacks_are_named(root: Path) -> None:
    (root / "proc").rmdir()

    (_, finding) = check_root(root)

    assert (finding.level, finding.fix) == (Level.WARNING, f"mkdir -p {root}/proc")


# -- kernel and limits --------------------------------------------------------------


def test_this_kernel_has_what_monarch_needs() -> None:
    assert levels([*kernel.check_kernel()]) == ["ok", "ok", "ok"]


def test_a_kernel_without_futex_prevents_and_without_statx_warns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = dict.fromkeys(kernel._NUMBERS, (NO_CALL, NO_CALL))
    monkeypatch.setattr(kernel, "_NUMBERS", numbers)

    found = list(kernel.check_kernel())

    assert levels(found) == ["ok", "prevents", "warning"]
    assert "Function not implemented" in found[1].text


@pytest.mark.parametrize(
    ("which", "soft", "hard", "level"),
    [
        (resource.RLIMIT_NOFILE, 1024, 1 << 20, "ok"),
        (resource.RLIMIT_NOFILE, 1024, 2048, "warning"),
        (resource.RLIMIT_FSIZE, 1 << 20, 1 << 20, "prevents"),
        (resource.RLIMIT_FSIZE, 1 << 30, 1 << 30, "warning"),
        (resource.RLIMIT_AS, 1 << 33, 1 << 33, "warning"),
        (resource.RLIMIT_NPROC, 100, 1 << 20, "warning"),
    ],
)
def test_limits_that_are_too_low_are_found(
    monkeypatch: pytest.MonkeyPatch, which: int, soft: int, hard: int, level: str
) -> None:
    none = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(
        resource, "getrlimit", lambda one: (soft, hard) if one == which else none
    )

    found = list(kernel.check_limits())

    assert levels(found)[-1] == level
    assert bool(found[-1].fix) == (level != "ok")


def test_disabled_monarch_is_found() -> None:
    def found(value: str) -> list[Finding]:
        return list(kernel.check_variables({"MONARCH_STAGING_DISABLE": value}))

    assert levels(found("1")) == ["warning"]
    assert not found("0")
    assert not list(kernel.check_variables(os.environ))
