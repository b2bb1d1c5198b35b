"""Where nodes leave their addresses for each other: files in a shared directory."""

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from monarch.wholefile import whole_file

ADDRESS_BYTES_MAX: Final = 2048
HOSTS_MAX: Final = 8


def write_address(
    directory: Path, job: str, number: int, hosts: Sequence[str], port: int
) -> None:
    """Tell the others of a job where this node's agent listens.

    Args:
        hosts: its names and addresses, the surest first.

    Raises:
        OSError: the file cannot be written.
    """
    text = json.dumps({"hosts": hosts[:HOSTS_MAX], "port": port})
    with whole_file(_place(directory, job, number), mode=0o600) as file:
        file.write(text.encode())


def read_addresses(directory: Path, job: str, number: int) -> list[tuple[str, int]]:
    """Return where a node's agent listens, nothing if it has not said so (yet).

    A file of anyone else's is none: it could only send us to those who do not know the
    secret.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(_place(directory, job, number), flags)
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                return []
            told = json.loads(file.read(ADDRESS_BYTES_MAX))
        hosts, port = [str(host) for host in told["hosts"]], int(told["port"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return []
    return [(host, port) for host in hosts[:HOSTS_MAX]] if 0 < port < 65536 else []


def remove_address(directory: Path, job: str, number: int) -> None:
    """Take this node's address back."""
    _place(directory, job, number).unlink(missing_ok=True)


def _place(directory: Path, job: str, number: int) -> Path:
    return directory / f"{job}.{number}.address"
