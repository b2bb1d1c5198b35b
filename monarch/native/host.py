"""Properties of the host: private directories, rights, mounts, seals."""

import ctypes
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from monarch.native.layout import CONSTANTS
from monarch.native.library import LIB, Memory, span

# As in shared/run_home.h.
_BYTES_MAX: Final = 256
_HOMES_MAX: Final = 8


def homes(base: Path | None = None) -> list[Path]:
    """Return the existing private directories of this user on a medium.

    Args:
        base: the medium; None: that of run directories.
    """
    out = ctypes.create_string_buffer(_BYTES_MAX * _HOMES_MAX)
    count = LIB.monarch_home_list(_name(base), out)
    found = [out.raw[n * _BYTES_MAX :].split(b"\0", 1)[0] for n in range(count)]
    return [Path(os.fsdecode(path)) for path in found]


def home(base: Path | None = None, *, make: bool = False) -> Path:
    """Return the private directory to be used on a medium.

    If it cannot be created, this is its plain name; its use then fails with the reason.

    Args:
        base: as in homes().
        make: create it if it does not exist.
    """
    out = ctypes.create_string_buffer(_BYTES_MAX)
    if LIB.monarch_home_choose(_name(base), make, out) and not out.value:
        return (base or Path("/")) / f"monarch-{os.geteuid()}"
    return Path(os.fsdecode(out.value))


def is_home(path: Path) -> bool:
    """Return whether a path has the name of a private directory of this user."""
    return bool(re.fullmatch(rf"monarch-{os.geteuid()}(\.[0-9a-f]{{12}})?", path.name))


def inodes_unstable(directory: bytes) -> bool:
    """Return whether files below a directory may change their inode numbers.

    Overlays copy a file when it is written to; many FUSE servers make up the numbers.
    True also if the file system cannot be determined.
    """
    return bool(LIB.monarch_inodes_unstable(directory))


@dataclass(frozen=True, slots=True)
class FileSystemTraits:
    """The properties of a file system, by its type.

    Attributes:
        is_remote: it is mounted over a network; false if unknown.
    """

    in_memory: bool
    is_remote: bool


def file_system_traits(path: Path) -> FileSystemTraits | None:
    """Return the traits of the file system at a path; None if they cannot be read."""
    found = int(LIB.monarch_file_system_traits(os.fsencode(path)))
    if found < 0:
        return None
    memory, remote = CONSTANTS["FS_IN_MEMORY"], CONSTANTS["FS_REMOTE"]
    return FileSystemTraits(bool(found & memory), bool(found & remote))


def rights_store(rights: Memory) -> None:
    """Write the rights of this process to a record that the Shim compares with."""
    LIB.monarch_rights_read(span(rights)[0])


def rights_mark() -> int:
    """Return the groups and capabilities of this process as one word."""
    return int(LIB.monarch_rights_mark())


def mounts_cover(block: Memory, directory: bytes) -> bool:
    """Return whether a catalogued name below a root is a mount point."""
    found = LIB.monarch_mounts_cover(span(block)[0], directory, len(directory))
    return bool(found)


def seal_library() -> str | None:
    """Return the name of the library that makes seals; None if none is found."""
    name: bytes | None = LIB.monarch_seal_library()
    return name.decode() if name else None


def _name(base: Path | None) -> bytes | None:
    return None if base is None else os.fsencode(base)
