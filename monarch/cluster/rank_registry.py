"""The nodes of an MPI launch that names none: each signs in to a shared directory."""

import os
import re
import stat
from pathlib import Path
from typing import Final

from monarch.cluster.nodes import Membership, Scattered
from monarch.errors import MonarchError

# Files of killed jobs of the same name; living nodes touch theirs at each look.
STALE_S: Final = 300.0

_ENTRY: Final = re.compile(r"([A-Za-z0-9._-]{1,64})@([1-9][0-9]{0,8})")


class Census:
    """Counts the ranks on all nodes of a job until all are accounted for.

    Everything here may block on the shared file system.

    Args:
        directory: where nodes meet.
        node: the name of this one.
    """

    def __init__(
        self, directory: Path, job: str, node: str, scattered: Scattered
    ) -> None:
        self._place = directory / f"{job}.nodes"
        self._own = self._place / f"{node}@{scattered.local}"
        self._node = node
        self._size = scattered.size
        self._ranks: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Census of {self._place}: {self.counted}/{self._size} ranks>"

    @property
    def counted(self) -> int:
        """Return how many ranks the nodes have that were found."""
        return sum(self._ranks.values())

    @property
    def why(self) -> str:
        """Return what is missing, after "this node works alone:"."""
        return (
            f"{self._place} accounts for {self.counted} of {self._size} ranks; name a "
            "directory that all nodes share (peers.rendezvous), or the nodes (--hosts)"
        )

    def look(self) -> Membership | None:
        """Sign in, and return the nodes if they have all ranks.

        Raises:
            MonarchError: the directory cannot be used.
        """
        try:
            now = self._sign_in()
            for name in os.listdir(self._place):
                self._count(name, now)
        except OSError as error:
            raise MonarchError(f"{self._place}: {error.strerror}") from error
        if self.counted != self._size:
            return None
        nodes = tuple(sorted(self._ranks, key=_natural))
        return Membership(nodes, nodes.index(self._node), "the ranks of MPI", {})

    def close(self) -> None:
        """Sign out; the last one to do so removes the directory."""
        try:
            self._own.unlink(missing_ok=True)
            self._place.rmdir()
        except OSError:
            return  # others are still there, or nobody can do anything about it

    def _sign_in(self) -> float:
        """Say that we are there, and return the time by the clock of the directory."""
        self._place.mkdir(mode=0o700, exist_ok=True)
        found = self._place.stat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            mode = stat.S_IMODE(found.st_mode)
            raise MonarchError(f"{self._place}: is not ours alone (mode {mode:o})")
        self._own.touch(mode=0o600)
        return self._own.stat().st_mtime

    def _count(self, name: str, now: float) -> None:
        entry = _ENTRY.fullmatch(name)
        if entry is None or entry[1] in self._ranks:
            return
        try:
            seen = (self._place / name).stat().st_mtime
        except FileNotFoundError:
            return
        if abs(now - seen) < STALE_S:
            self._ranks[entry[1]] = int(entry[2])


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts n2 before n10."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]
