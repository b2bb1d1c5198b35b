"""The wheels of a release: old systems, other machines, and the same in all of them."""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from monarch import __version__
from support.shim_fixtures import SOURCES, Board, Compile

ROOT = Path(__file__).parents[2]
NAME = f"monarch_staging-{__version__}"
MACHINES = ("x86_64", "aarch64")
PARTS = {
    "shim": "monarch/native/libmonarch_shim.so",
    "engine": "monarch/native/libmonarch.so",
    "launcher": f"{NAME}.data/scripts/monarch",
}
GLIBC = re.compile(r"GLIBC_(\d+)\.(\d+)")
GLIBC_MAX = (2, 17)
INTERPRETERS = {
    "x86_64": "/lib64/ld-linux-x86-64.so.2",
    "aarch64": "/lib/ld-linux-aarch64.so.1",
}

pytestmark = [
    pytest.mark.release,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the source archive and the wheels of a release."""
    folder = tmp_path_factory.mktemp("dist")
    script = ROOT / "scripts" / "release.py"
    command = [sys.executable, "-P", str(script), "--build-only", "--to", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="session")
def unpacked(dist: Path) -> dict[str, Path]:
    """The files of each machine's wheel."""
    for machine in MACHINES:
        with zipfile.ZipFile(wheel_of(dist, machine)) as archive:
            archive.extractall(dist / machine)
    return {machine: dist / machine for machine in MACHINES}


def wheel_of(dist: Path, machine: str) -> Path:
    return dist / f"{NAME}-py3-none-manylinux_2_17_{machine}.whl"


def test_release_is_a_source_archive_and_a_wheel_for_each_machine(dist: Path) -> None:
    wheels = {wheel_of(dist, machine).name for machine in MACHINES}

    names = {path.name for path in dist.iterdir() if path.is_file()}

    assert names == {f"{NAME}.tar.gz", *wheels}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("machine", MACHINES)
def test_no_part_needs_a_symbol_newer_than_glibc_2_17(
    unpacked: dict[str, Path], machine: str, part: str
) -> None:
    objdump = shutil.which(f"{machine}-linux-gnu-objdump")
    if objdump is None:
        pytest.skip(f"no objdump for {machine}")
    command = [objdump, "-T", str(unpacked[machine] / PARTS[part])]

    symbols = subprocess.check_output(command, text=True)

    found = {(int(one[1]), int(one[2])) for one in GLIBC.finditer(symbols)}
    assert found
    assert max(found) <= GLIBC_MAX


@pytest.mark.parametrize("machine", MACHINES)
def test_auditwheel_agrees_with_the_tag(dist: Path, machine: str) -> None:
    command = [sys.executable, "-m", "auditwheel", "show", "--json"]
    shown = subprocess.check_output([*command, wheel_of(dist, machine)], text=True)

    found = json.loads(shown)

    assert found["overall_tag"] == f"manylinux_2_17_{machine}"
    assert found["external_libs"] == {}


def test_wheels_differ_in_the_native_parts_only(unpacked: dict[str, Path]) -> None:
    here, there = (
        {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        for folder in unpacked.values()
    )
    named = {f"{NAME}.dist-info/{name}" for name in ("RECORD", "WHEEL")}

    assert set(here) == set(there)
    different = {name for name in here if here[name] != there[name]}
    assert different == {*PARTS.values(), *named}


@pytest.mark.parametrize("machine", MACHINES)
def test_launcher_is_for_its_machine_and_finds_the_usual_loader(
    unpacked: dict[str, Path], machine: str
) -> None:
    program = (unpacked[machine] / PARTS["launcher"]).read_bytes()

    assert INTERPRETERS[machine].encode() + b"\0" in program
    # No path of the machine that built it.
    assert str(ROOT).encode() not in program
    assert sys.prefix.encode() not in program


def exported(library: Path) -> set[str]:
    symbols = subprocess.check_output(
        ["readelf", "-W", "--dyn-syms", library], text=True
    )
    rows = (line.split() for line in symbols.splitlines())
    return {row[7] for row in rows if len(row) == 8 and "UND" not in row}


def test_all_shims_export_the_same_functions(unpacked: dict[str, Path]) -> None:
    installed = Path(sysconfig.get_path("purelib")) / PARTS["shim"]

    names = exported(installed)

    assert "openat" in names
    for folder in unpacked.values():
        assert exported(folder / PARTS["shim"]) == names


def test_shim_of_the_wheel_serves_a_program_of_the_other_machine(
    unpacked: dict[str, Path], board: Board, compiled: Compile
) -> None:
    qemu, cross = shutil.which("qemu-aarch64"), shutil.which("aarch64-linux-gnu-gcc")
    if qemu is None or cross is None:
        pytest.skip("needs qemu-aarch64 and aarch64-linux-gnu-gcc")
    reader = board.folder / "reader"
    subprocess.run([cross, SOURCES / "reader.c", "-o", reader], check=True)
    board.library = unpacked["aarch64"] / PARTS["shim"]
    board.start()
    board.ask("publish two.bin")
    words = [qemu, "-L", "/usr/aarch64-linux-gnu"]
    words += ["-E", f"LD_PRELOAD={board.run_dir / 'shim.so'}"]
    words += ["-E", f"MONARCH_STAGING_RUN={board.run_dir}"]

    shown = board.run(*words, reader, board.root / "two.bin", env={})

    assert shown == "two.b\n"
    assert board.counters()["opens_hit_tier0"] == 1
