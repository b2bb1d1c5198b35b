"""Makes a release: builds, checks, installs and tries it.

The wheels are compiled by the C compiler of `ziglang`, which brings the headers and
symbols of glibc 2.17 for each machine. What the compiler of this system makes needs its
glibc or a newer one.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "release"
GLIBC = "2.17"
PLATFORM = "manylinux_2_17"
MACHINES = ("x86_64", "aarch64")
DEMO_FILES = 60

TOOLCHAIN = """\
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR {machine})
set(CMAKE_C_COMPILER {compiler})
set(CMAKE_C_FLAGS_INIT -fno-sanitize=undefined)
set(CMAKE_EXE_LINKER_FLAGS_INIT -s)
set(CMAKE_SHARED_LINKER_FLAGS_INIT -s)
"""


def say(text: str) -> None:
    """Print what is done next."""
    print(f"release: {text}", file=sys.stderr, flush=True)


def run(*words: str | Path, cwd: Path = ROOT, **env: str) -> str:
    """Run a command and return what it prints; end with its output if it fails."""
    # Nothing of the calling Python's is for the tools.
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**clean, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}release: failed: {' '.join(map(str, words))}")
    return done.stdout


def changed_at() -> str:
    """Return the time of the last commit, which files of archives get."""
    found = shutil.which("git") and (ROOT / ".git").exists()
    return run("git", "log", "-1", "--format=%ct").strip() if found else "0"


def build_sdist(dist: Path) -> Path:
    """Build the source archive and return it."""
    say("building the source archive")
    python = Path(sys.executable)
    words = ("-m", "build", "--no-isolation", "--sdist", "--outdir", dist)
    run(python, *words, SOURCE_DATE_EPOCH=changed_at())
    (sdist,) = dist.glob("monarch_staging-*.tar.gz")
    return sdist


def build_wheel(sdist: Path, machine: str, dist: Path) -> Path:
    """Build the wheel for one machine out of the source archive and return it."""
    say(f"building the wheel for {machine}")
    python = Path(sys.executable)
    toolchain = WORK / f"{machine}.cmake"
    toolchain.parent.mkdir(parents=True, exist_ok=True)
    words = " ".join(f'"{word}"' for word in zig(machine))
    toolchain.write_text(TOOLCHAIN.format(machine=machine, compiler=words))
    with tempfile.TemporaryDirectory(prefix="monarch-release-") as folder:
        built = Path(folder)
        options = [
            f"cmake.args=-GNinja;-DCMAKE_TOOLCHAIN_FILE={toolchain}",
            "install.strip=false",  # the linker has done it, for any machine
        ]
        pip = [word for option in options for word in ("-C", option)]
        pip += ["--no-deps", "--no-build-isolation", "--no-cache-dir", "-w", folder]
        time = changed_at()
        run(python, "-m", "pip", "wheel", *pip, sdist, SOURCE_DATE_EPOCH=time)
        (wheel,) = built.glob("*.whl")
        tags = ["--remove", "--platform-tag", f"{PLATFORM}_{machine}"]
        run(python, "-m", "wheel", "tags", *tags, wheel, SOURCE_DATE_EPOCH=time)
        (wheel,) = built.glob("*.whl")
        return Path(shutil.move(wheel, dist / wheel.name))


def check(archives: list[Path]) -> None:
    """Check the description, and that the wheels keep what their tags promise."""
    say("checking the archives")
    python = sys.executable
    run(python, "-m", "twine", "check", "--strict", *archives)
    for wheel in archives[1:]:
        shown = run(python, "-m", "auditwheel", "show", "--json", wheel)
        tag = json.loads(shown)["overall_tag"]
        if not wheel.stem.endswith(f"-{tag}"):
            sys.exit(f"release: {wheel.name} is {tag} for auditwheel")
        say(f"{wheel.name}: {wheel.stat().st_size:,} bytes, {tag} for auditwheel")


def install(archive: Path, folder: Path) -> Path:
    """Install an archive into a new environment and return the Python of that."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-cache-dir", archive, CC=compiler())
    return python


def compiler() -> str:
    """Return the C compiler for the source archive: the system's where there is one."""
    found = os.environ.get("CC") or shutil.which("cc")
    return found or shlex.join(zig(os.uname().machine))


def zig(machine: str) -> list[str]:
    """Return the compiler of PyPI for a machine with the glibc of the wheels."""
    target = f"{machine}-linux-gnu.{GLIBC}"
    return [sys.executable, "-m", "ziglang", "cc", "-target", target]


def try_out(sdist: Path, wheel: Path) -> None:
    """Install both in clean environments, ask each for its version, run the demo."""
    for archive in (sdist, wheel):
        say(f"installing {archive.name} into a clean environment")
        with tempfile.TemporaryDirectory(prefix="monarch-release-") as folder:
            python = install(archive, Path(folder) / "venv")
            monarch = python.with_name("monarch")
            say(run(monarch, "version", cwd=Path(folder)).strip())
            if archive is wheel:
                demo = ("-P", ROOT / "scripts" / "demo.py", str(DEMO_FILES))
                print(run(python, *demo, cwd=Path(folder)), file=sys.stderr)


def main() -> None:
    """Run the steps of the command line."""
    parser = argparse.ArgumentParser(prog="scripts/release", description=__doc__)
    parser.add_argument("--to", type=Path, default=ROOT / "dist", metavar="FOLDER")
    parser.add_argument("--build-only", action="store_true")
    options = parser.parse_args()
    dist = options.to.resolve()
    os.environ.setdefault("ZIG_GLOBAL_CACHE_DIR", str(WORK / "zig"))
    dist.mkdir(parents=True, exist_ok=True)
    for old in (
        *dist.glob("monarch_staging-*.whl"),
        *dist.glob("monarch_staging-*.tar.gz"),
    ):
        old.unlink()
    sdist = build_sdist(dist)
    wheels = [build_wheel(sdist, machine, dist) for machine in MACHINES]
    if not options.build_only:
        check([sdist, *wheels])
        try_out(sdist, wheels[MACHINES.index(os.uname().machine)])
    say(f"made {', '.join(path.name for path in (sdist, *wheels))} in {dist}")


if __name__ == "__main__":
    main()
