"""The directory on a shared file system in which the nodes of a job meet."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from monarch.errors import MonarchError


def rendezvous_directory(given: str | None, environ: Mapping[str, str]) -> Path:
    """Return the directory, made if it is new.

    Args:
        given: what `peers.rendezvous` says.

    Raises:
        MonarchError: it cannot be made, or others could change what is in it.
    """
    path = Path(given) if given is not None else usual_rendezvous(environ)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        raise _refusal(path, str(error.strerror)) from error
    if found.st_uid not in (os.geteuid(), 0):
        raise _refusal(path, f"belongs to user {found.st_uid}, not to us")
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        mode = stat.S_IMODE(found.st_mode)
        raise _refusal(path, f"others may write to it (mode {mode:o}, not 700)")
    return path


def usual_rendezvous(environ: Mapping[str, str]) -> Path:
    """Return where nodes meet unless the configuration says otherwise."""
    state = environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        state = os.path.join(environ.get("HOME") or Path.home(), ".local/state")
    return Path(state) / "monarch-staging"


def _refusal(path: Path, why: str) -> MonarchError:
    return MonarchError(
        f"peers.rendezvous: {path}: {why}; name a directory of yours that all nodes "
        "share"
    )
