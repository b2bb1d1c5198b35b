"""Where nodes leave their addresses for each other: files in a shared directory."""

import json
import os
import socket
import stat
from pathlib import Path
from typing import Final

from monarch.wholefile import whole_file

ADDRESS_BYTES_MAX: Final = 1024


def write_address(directory: Path, job: str, number: int, host: str, port: int) -> None:
    """Tell the others of a job where this node's agent listens.

    Args:
        host: "" means the name of this machine.

    Raises:
        OSError: the file cannot be written.
    """
    text = json.dumps({"host": host or socket.gethostname(), "port": port})
    with whole_file(_place(directory, job, number), mode=0o600) as file:
        file.write(text.encode())


def read_address(directory: Path, job: str, number: int) -> tuple[str, int] | None:
    """Return where a node's agent listens, None if it has not said so (yet).

    A file of anyone else's is none: it could only send us to those who do not know the
    secret.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(_place(directory, job, number), flags)
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                return None
            told = json.loads(file.read(ADDRESS_BYTES_MAX))
        host, port = str(told["host"]), int(told["port"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return (host, port) if 0 < port < 65536 else None


def remove_address(directory: Path, job: str, number: int) -> None:
    """Take this node's address back."""
    _place(directory, job, number).unlink(missing_ok=True)


def _place(directory: Path, job: str, number: int) -> Path:
    return directory / f"{job}.{number}.address"
