"""Checks whether the Shim loads in the programs of this node, or of a container.

A dynamic linker lists the libraries of a program, and missing symbols, without running
the program; the linker of a container works outside of it, too.
"""

import os
import platform
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import monarch.native
from monarch.doctor.findings import Finding, note, ok, prevents, warning

SHIM: Final = Path(monarch.native.__file__).parent / "libmonarch_shim.so"
TIMEOUT_S: Final = 20
_FOLDERS: Final = ("lib64", "lib", "usr/lib64", "usr/lib")
_PROGRAMS: Final = ("bin/sh", "usr/bin/python3", "usr/local/bin/python3*", "bin/*")
_LINKS_MAX: Final = 40
# 64-bit ELF files: the place of the program headers, and the content of each.
_ELF_HEADER: Final = struct.Struct("<4sB13xH12xQ14xHH")
_PROGRAM_HEADER: Final = struct.Struct("<I4xQ16xQ")
_ELF_64: Final = (b"\x7fELF", 2)
_MACHINES: Final = {"x86_64": 62, "aarch64": 183}
_PT_INTERP: Final = 3
_PLACES: Final = ("proc", "dev/shm")


def check_here(shim: Path = SHIM) -> Iterator[Finding]:
    """Preload the Shim into a program of this node."""
    if not shim.exists():
        yield prevents("shim", f"{shim} is missing", "install Monarch again")
        return
    with _preloadable(shim) as path:
        program = ["cat", "/proc/self/maps"]
        done = _run(program, path)
    if path in done.stdout:
        yield ok("shim", "loads in programs of this node")
    else:
        reason = _reason(done) or "it was ignored without a message"
        yield prevents(
            "shim",
            f"does not load: {reason}",
            "build Monarch for this machine: pip install --force-reinstall .",
        )
    if others := os.environ.get("LD_PRELOAD"):
        yield note("shim", f"is loaded after {others}, as LD_PRELOAD requires")


def check_root(root: Path, shim: Path = SHIM) -> Iterator[Finding]:
    """Check whether the Shim would load in a container whose root is a directory."""
    check = f"container {root}"
    program = _find(root, _PROGRAMS)
    if program is None:
        yield prevents(
            check,
            "its /bin contains no program",
            "name the root directory of an unpacked container",
        )
        return
    name = f"/{program.relative_to(root.resolve())}"
    if (interpreter := _interpreter(program)) is None:
        yield prevents(
            check,
            f"{name} is not a dynamically linked program for this machine: it "
            "reads the origin",
            "use an image for this machine whose programs are dynamically linked",
        )
        return
    linker = _resolved(root, interpreter)
    if linker is None:
        text = f"{name} cannot start: {interpreter} is missing"
        yield prevents(check, text, "install the C library in the image")
        return
    with _preloadable(shim) as path:
        folders = ":".join(map(str, _library_folders(root)))
        words = [str(linker), "--library-path", folders, "--list", str(program)]
        done = _run(words, path)
    lacking = _lacking(done.stdout, (str(root.resolve()), path, interpreter))
    if lacking:
        yield prevents(
            check,
            f"{name} would not start with the shim, which needs {', '.join(lacking)}",
            "install the whole C library in the image (glibc 2.17 or newer, or musl)",
        )
    elif path in done.stdout and not done.returncode and not done.stderr:
        yield ok(check, f"the shim loads in {name}, with {linker.name}")
    else:
        yield prevents(
            check,
            f"the shim does not load in {name}: {_reason(done)}",
            "use an image for this machine with glibc 2.17 or newer, or with musl",
        )
    yield from _missing_places(root, check)


def _lacking(listed: str, known: tuple[str, ...]) -> list[str]:
    """Return the libraries that a dynamic linker has found on this machine only."""
    found = re.findall(r"^\s*(?:\S+ => )?(/.*) \(0x", listed, re.MULTILINE)
    return [os.path.basename(path) for path in found if not path.startswith(known)]


def _missing_places(root: Path, check: str) -> Iterator[Finding]:
    for place in _PLACES:
        if _resolved(root, place) is None:
            yield warning(
                check,
                f"has no directory /{place}, on which the host's is to be mounted",
                f"mkdir -p {root}/{place}",
            )


@contextmanager
def _preloadable(shim: Path) -> Iterator[str]:
    """Yield a path of the Shim that LD_PRELOAD does not split at spaces or colons."""
    if not set(str(shim)) & set(" :$"):
        yield str(shim)
        return
    with tempfile.TemporaryDirectory(prefix="monarch-doctor-") as folder:
        yield shutil.copyfile(shim, f"{folder}/shim.so")


def _run(words: list[str], preload: str) -> subprocess.CompletedProcess[str]:
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LD_", "MONARCH_STAGING_RUN"))
    }
    environ |= {"LD_PRELOAD": preload, "LC_ALL": "C"}
    try:
        return subprocess.run(
            words,
            env=environ,
            capture_output=True,
            check=False,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(words, 127, "", str(error))


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """Return the line with the error of a dynamic linker."""
    lines = [*done.stderr.splitlines(), *done.stdout.splitlines()]
    telling = [line for line in lines if "not found" in line or "rror" in line]
    return (telling or [*lines, f"exit status {done.returncode}"])[0].strip()


# -- files below a root, whose links are meant for processes inside -----------------


def _find(root: Path, patterns: list[str] | tuple[str, ...]) -> Path | None:
    """Return the first file below a root that has one of the names."""
    for pattern in patterns:
        folder = _resolved(root, os.path.dirname(pattern))
        for path in sorted(folder.glob(os.path.basename(pattern))) if folder else ():
            found = _resolved(root, str(path.relative_to(root.resolve())))
            if found is not None and found.is_file():
                return found
    return None


def _interpreter(program: Path) -> str | None:
    """Return the dynamic linker that a program for this machine names, or None."""
    with program.open("rb") as file:
        head = file.read(_ELF_HEADER.size)
        if len(head) < _ELF_HEADER.size:
            return None
        *kind, machine, start, size, count = _ELF_HEADER.unpack(head)
        ours = _MACHINES.get(platform.machine(), machine)
        if tuple(kind) != _ELF_64 or machine != ours:
            return None
        for number in range(count):
            file.seek(start + number * size)
            part = file.read(_PROGRAM_HEADER.size).ljust(_PROGRAM_HEADER.size, b"\0")
            meaning, offset, length = _PROGRAM_HEADER.unpack(part)
            if meaning == _PT_INTERP:
                file.seek(offset)
                return os.fsdecode(file.read(length).rstrip(b"\0"))
    return None


def _library_folders(root: Path) -> list[Path]:
    """Return the directories of a root that usually contain libraries."""
    found = []
    for name in _FOLDERS:
        folder = _resolved(root, name)
        if folder is not None and folder not in found:
            found += [folder, *sorted(folder.glob("*-linux-*"))]
    return found


def _resolved(root: Path, path: str) -> Path | None:
    """Return the target of a path below a root for a process inside; None: no such."""
    top = root.resolve()
    at, left, links = top, path.split("/")[::-1], 0
    while left:
        part = left.pop()
        if part in ("", "."):
            continue
        if part == "..":
            at = at.parent if at != top else top
            continue
        one = at / part
        if one.is_symlink() and links < _LINKS_MAX:
            links += 1
            target = os.readlink(one)
            at = top if target.startswith("/") else at
            left += target.split("/")[::-1]
        elif one.exists():
            at = one
        else:
            return None
    return at
