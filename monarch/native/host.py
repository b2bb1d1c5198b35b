"""The directory that is a user's alone on a medium, as the launcher finds it."""

import ctypes
import os
import re
from pathlib import Path
from typing import Final

from monarch.native.library import LIB

# As in shared/home.h.
_BYTES_MAX: Final = 256
_HOMES_MAX: Final = 8


def homes(base: Path | None = None) -> list[Path]:
    """Return the homes of this user that are there.

    Args:
        base: the medium; None is that of run directories.
    """
    out = ctypes.create_string_buffer(_BYTES_MAX * _HOMES_MAX)
    count = LIB.monarch_home_list(_name(base), out)
    found = [out.raw[n * _BYTES_MAX :].split(b"\0", 1)[0] for n in range(count)]
    return [Path(os.fsdecode(path)) for path in found]


def home(base: Path | None = None, *, make: bool = False) -> Path:
    """Return the home to be used, made if it is new, or only its name.

    It is the plain one where none can be made: whoever uses it finds out why.
    """
    out = ctypes.create_string_buffer(_BYTES_MAX)
    if LIB.monarch_home_choose(_name(base), make, out) and not out.value:
        return (base or Path("/")) / f"monarch-{os.geteuid()}"
    return Path(os.fsdecode(out.value))


def is_home(path: Path) -> bool:
    """Return whether a path has the name of a home of this user."""
    return bool(re.fullmatch(rf"monarch-{os.geteuid()}(\.[0-9a-f]{{12}})?", path.name))


def _name(base: Path | None) -> bytes | None:
    return None if base is None else os.fsencode(base)
