"""The run directory of a job on this node, which the agent owns while it lives."""

import logging
import os
import shutil
import stat
from pathlib import Path
from typing import Final

import monarch.native
from monarch.errors import MonarchError
from monarch.tiers.directory_lock import lock_directory, remove_tree
from monarch.tiers.leftovers import has_programs, supersede

# What the launcher puts there itself; everything else is an agent's.
_LAUNCHERS: Final = frozenset({"start", "lock", "agent.log", "failed"})
# What programs need that live on.
_OUTLIVING: Final = frozenset({"shim.so"})
_SHIM: Final = "libmonarch_shim.so"

log = logging.getLogger("monarch.agent")


class RunDirectory:
    """A private directory, held by a lock that only a death gives back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lock = lock_directory(path)
        if lock is None:
            raise MonarchError(f"{path}: another agent is there already")
        self._lock = lock
        self._wipe()

    def __repr__(self) -> str:
        return f"<RunDirectory {self.path}>"

    def _wipe(self) -> None:
        """Remove what a dead agent has left: nothing of it is to be trusted."""
        supersede(self.path)
        self._clear(_LAUNCHERS)

    def _clear(self, kept: frozenset[str]) -> None:
        for entry in os.scandir(self.path):
            if entry.name in kept:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)

    def write(self, name: str, content: str) -> None:
        """Write a small file for people."""
        fd = os.open(
            self.path / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(fd, "w") as file:
            file.write(content)

    def place_shim(self) -> None:
        """Copy the Shim to where no space or colon is in its path."""
        source = Path(monarch.native.__file__).parent / _SHIM
        target = self.path / "shim.so"
        if not source.exists():
            raise MonarchError(f"{source} is missing; install Monarch again")
        if os.statvfs(self.path).f_flag & os.ST_NOEXEC:
            target.symlink_to(source)
            return
        try:
            shutil.copyfile(source, target)
            os.chmod(target, stat.S_IRUSR | stat.S_IXUSR)
        except OSError as error:
            raise MonarchError(
                f"{self.path}: no room for shim.so: {error.strerror}"
            ) from error

    def leave(self) -> None:
        """Remove all that is ours and let go of the lock."""
        self._wipe()
        os.close(self._lock)

    def remove(self) -> None:
        """Remove the directory, then let go of its lock.

        Programs of the job that live on may start others, which find the Shim where it
        was; who collects leftovers removes it when they have ended.
        """
        supersede(self.path)
        if has_programs(self.path):
            self._clear(_LAUNCHERS | _OUTLIVING)
        elif not remove_tree(self.path):
            log.warning("run directory stays path=%s", self.path)
        os.close(self._lock)
