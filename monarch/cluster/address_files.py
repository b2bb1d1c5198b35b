"""Where nodes leave their addresses for each other: files in a shared directory."""

import json
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from monarch.atomic_file import whole_file

ADDRESS_BYTES_MAX: Final = 2048
HOSTS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Left:
    """What an agent leaves for the others.

    Attributes:
        machine: where it runs, by `machine()`.
    """

    hosts: tuple[str, ...]
    port: int
    machine: str


def write_address(
    directory: Path, job: str, number: int, hosts: Sequence[str], port: int
) -> None:
    """Tell the others of a job where this node's agent listens.

    Args:
        hosts: its names and addresses, the surest first.

    Raises:
        OSError: the file cannot be written.
    """
    told = {"hosts": hosts[:HOSTS_MAX], "port": port, "machine": machine()}
    text = json.dumps(told)
    with whole_file(_place(directory, job, number), mode=0o600) as file:
        file.write(text.encode())


def read_addresses(directory: Path, job: str, number: int) -> list[tuple[str, int]]:
    """Return where a node's agent listens, nothing if it has not said so (yet)."""
    left = read_left(_place(directory, job, number))
    return [(host, left.port) for host in left.hosts] if left is not None else []


def read_left(path: Path) -> Left | None:
    """Return what an agent has left in its file; None if that is not one of ours.

    A file of anyone else's could only send us to those who do not know the secret.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags)
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                return None
            told = json.loads(file.read(ADDRESS_BYTES_MAX))
        hosts, port = [str(host) for host in told["hosts"]], int(told["port"])
        left = Left(tuple(hosts[:HOSTS_MAX]), port, str(told.get("machine", "")))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return left if left.hosts and 0 < port < 65536 else None


def machine() -> str:
    """Return what no other machine, and no other network on it, is called; "": unknown.

    An address such as 127.0.0.1 is another one there.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/net')}"
    except OSError:
        return ""


def remove_address(directory: Path, job: str, number: int) -> None:
    """Take this node's address back."""
    _place(directory, job, number).unlink(missing_ok=True)


def _place(directory: Path, job: str, number: int) -> Path:
    return directory / f"{job}.{number}.address"
