"""C and C++ programs of the tests, compiled once per text and options.

They are kept below build/tests/, so that neither the next run nor a worker beside this
one compiles them again. A program is compiled anew when its command, one of the sources
named in it, any header of the project or the compiler changes.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
NATIVE = ROOT / "monarch" / "native"
KEPT = ROOT / "build" / "tests"
KEPT_S = 7 * 86400
LIMIT_S = 300
SOURCES = (".c", ".cc")
HEADERS = ("*.h", "*.def", "*.map")

ADDRESS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
THREAD = ("-fsanitize=thread",)
WARNINGS = ("-Wall", "-Wextra", "-Werror")

Words = Sequence[str | Path]


def build(name: str, *words: str | Path) -> Path:
    """The file `name` that a compiler makes.

    Args:
        words: the command, without `-o`.
    """
    command = [str(word) for word in words]
    made = _folder(command) / name
    with _locked(made.parent):
        if not made.exists():
            new = made.with_name(f".{name}")
            subprocess.run([*command, "-o", new], check=True, timeout=LIMIT_S)
            new.rename(made)
    os.utime(made.parent)
    return made


def objects(words: Words, sources: Sequence[Path]) -> tuple[Path, ...]:
    """The object files of some sources, with the same options."""
    return tuple(build(f"{path.stem}.o", *words, "-c", path) for path in sources)


def _folder(command: Sequence[str]) -> Path:
    """Where the result of a command is kept."""
    key = hashlib.blake2b(digest_size=12)
    for part in (_version(command[0]), _headers(), "\0".join(command)):
        key.update(part.encode() + b"\0")
    for word in command:
        if word.endswith(SOURCES):
            key.update(Path(word).read_bytes() + b"\0")
    return KEPT / key.hexdigest()


@cache
def _version(compiler: str) -> str:
    return subprocess.check_output([compiler, "--version"], text=True)


@cache
def _headers() -> str:
    """The digest of all that a source may include."""
    _remove_old()
    found = hashlib.blake2b(digest_size=12)
    for folder in (NATIVE, ROOT / "tests"):
        for path in sorted(p for pattern in HEADERS for p in folder.rglob(pattern)):
            found.update(bytes(path) + b"\0" + path.read_bytes())
    return found.hexdigest()


def _remove_old() -> None:
    """Removes files that were not used for a week."""
    KEPT.mkdir(parents=True, exist_ok=True)
    for folder in KEPT.iterdir():
        if folder.stat().st_mtime < time.time() - KEPT_S:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds a folder, made if it is not there, against the other workers."""
    folder.mkdir(parents=True, exist_ok=True)
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
