"""Words of the catalog that every layer shares: names, and why one is left out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PATH_BYTES_MAX = 1023
"""Longest root-relative path of an Entry; a longer one is left to the origin."""


@dataclass(frozen=True, slots=True)
class Patterns:
    """Which names below a dataset root are catalogued.

    Attributes:
        include: a name must match one of these ...
        exclude: ... and none of these ...
        never: ... nor any of these, which are files that must not be staged.
    """

    include: tuple[str, ...] = ("**",)
    exclude: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


class Unmanaged(StrEnum):
    """Why a name below a root is left to the origin."""

    EXCLUDED = "excluded"
    SPECIAL = "special"
    MOUNT = "mount"
    UNREADABLE = "unreadable"
    LONG = "long"
    ABSURD = "absurd"
    LINK_OUTSIDE = "link_outside"
    LINK_DANGLING = "link_dangling"
    LINK_LOOP = "link_loop"
    LINK_UNLISTED = "link_unlisted"
    LINK_CYCLE = "link_cycle"
    LINK_LIMIT = "link_limit"

    @property
    def text(self) -> str:
        """Return the reason in words, as it follows a count."""
        return _TEXTS[self]


def shown(path: bytes) -> str:
    """Return a path as one line of text that any terminal and any pipe can take."""
    text = path.decode("utf-8", "backslashreplace")
    return text if text.isprintable() else text.encode("unicode_escape").decode()


_TEXTS = {
    Unmanaged.EXCLUDED: "left out by include, exclude or never",
    Unmanaged.SPECIAL: "not a file, directory or link",
    Unmanaged.MOUNT: "mounted from another file system",
    Unmanaged.UNREADABLE: "that could not be read",
    Unmanaged.LONG: f"with a path longer than {PATH_BYTES_MAX} bytes",
    Unmanaged.ABSURD: "with a size, time or inode that cannot be right",
    Unmanaged.LINK_OUTSIDE: "links that leave the root",
    Unmanaged.LINK_DANGLING: "links to nothing",
    Unmanaged.LINK_LOOP: "links in a loop",
    Unmanaged.LINK_UNLISTED: "links to something that is not catalogued",
    Unmanaged.LINK_CYCLE: "directory links to a directory that holds them",
    Unmanaged.LINK_LIMIT: "directory links beyond the limits on depth or names",
}
