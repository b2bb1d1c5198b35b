"""The rendezvous directory: shared files with a job's secret and agents' addresses.

All nodes of a job must be able to write to it. It has these files of each job:

    JOB.key         32 random bytes that only the agents of the job have
    JOB.N.address   the address of the agent of node N; of the first nodes only
    JOB.nodes/      the number of ranks of each node, see monarch.cluster.nodes
"""

import contextlib
import json
import os
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from monarch.atomic_file import whole_file
from monarch.config.request import state_directory
from monarch.errors import MonarchError
from monarch.kept_files import make_directories

SECRET_BYTES: Final = 32
# How long another node may take from the creation of the file to its content.
SECRET_TIMEOUT_S: Final = 5.0
_POLL_S: Final = 0.05

ADDRESS_BYTES_MAX: Final = 2048
HOSTS_MAX: Final = 8

_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


# -- the directory ------------------------------------------------------------------


def open_rendezvous(given: str | None, environ: Mapping[str, str]) -> Path:
    """Return the rendezvous directory, created if it does not exist.

    Args:
        given: the value of `peers.rendezvous`.

    Raises:
        MonarchError: it cannot be created, or other users can write to it.
    """
    path = Path(given) if given is not None else state_directory(environ)
    try:
        make_directories(path)
        found = path.stat()
    except OSError as error:
        raise _unusable(path, str(error.strerror)) from error
    if found.st_uid not in (os.geteuid(), 0):
        raise _unusable(path, f"belongs to user {found.st_uid}, not to you")
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        mode = stat.S_IMODE(found.st_mode)
        reason = f"is writable by other users (mode {mode:04o}, expected 0700)"
        raise _unusable(path, reason)
    return path


def _unusable(path: Path, reason: str) -> MonarchError:
    return MonarchError(
        f"peers.rendezvous: {path}: {reason}; set it to a directory of yours that all "
        "nodes share"
    )


# -- the secret ---------------------------------------------------------------------


def job_secret(directory: Path, job: str) -> bytes:
    """Return the secret of a job; the first node that requests it creates it.

    It blocks until another node that has created the file has written it, so call it
    in a thread.

    Raises:
        MonarchError: no secret can be trusted; the text is the reason.
    """
    path = secret_path(directory, job)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o600)
    except FileExistsError:
        return _wait_for_secret(path)
    except OSError as error:
        raise MonarchError(f"{path}: {error.strerror}") from error
    try:
        return _write_secret(fd)
    except OSError as error:
        # An empty file would make all later jobs of this name fail.
        path.unlink(missing_ok=True)
        raise MonarchError(f"{path}: {error.strerror}") from error


def _write_secret(fd: int) -> bytes:
    with os.fdopen(fd, "wb") as file:
        secret = os.urandom(SECRET_BYTES)
        os.fchmod(file.fileno(), 0o600)
        file.write(secret)
        file.flush()
        os.fsync(file.fileno())
    return secret


def _wait_for_secret(path: Path) -> bytes:
    deadline_s = time.monotonic() + SECRET_TIMEOUT_S
    while True:
        try:
            secret = read_secret(path)
            with contextlib.suppress(OSError):
                os.utime(path)  # a new job uses it: it is not stale
            return secret
        except _EmptyError:
            if time.monotonic() >= deadline_s:
                raise
            time.sleep(_POLL_S)


class _EmptyError(MonarchError):
    """The file of a secret exists but is empty."""


def read_secret(path: Path) -> bytes:
    """Return the secret in a private file of this user.

    Raises:
        MonarchError: it is not such a file; the text is the reason.
    """
    try:
        fd = os.open(path, _READ_FLAGS)
    except OSError as error:
        raise MonarchError(f"{path}: {error.strerror}") from error
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise MonarchError(f"{path}: is not a regular file")
        if found.st_uid != os.geteuid():
            raise MonarchError(f"{path}: belongs to user {found.st_uid}, not to you")
        if found.st_mode & 0o077:
            mode = stat.S_IMODE(found.st_mode)
            raise MonarchError(
                f"{path}: must be private (mode {mode:04o}, expected 0600)"
            )
        secret = file.read(SECRET_BYTES + 1)
    if not secret:
        raise _EmptyError(f"{path}: is empty")
    if len(secret) != SECRET_BYTES:
        raise MonarchError(f"{path}: must contain exactly {SECRET_BYTES} bytes")
    return secret


def given_secret(file: str) -> bytes:
    """Return the secret in the file that `peers.secret_file` names.

    Raises:
        MonarchError: it has no secret that can be trusted; the text is the reason.
    """
    try:
        return read_secret(Path(file))
    except MonarchError as error:
        raise MonarchError(f"peers.secret_file: {error}") from error


def remove_secret(directory: Path, job: str) -> None:
    """Remove the secret of a job that has ended."""
    secret_path(directory, job).unlink(missing_ok=True)


def secret_path(directory: Path, job: str) -> Path:
    """Return the path of a job's secret."""
    return directory / f"{job}.key"


# -- addresses ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddressFile:
    """The content of one address file.

    Attributes:
        hosts: names and addresses of the node, the most reliable first.
        machine: the machine and network on which the agent runs, see machine_id().
    """

    hosts: tuple[str, ...]
    port: int
    machine: str


def write_address(
    directory: Path, job: str, number: int, hosts: Sequence[str], port: int
) -> None:
    """Publish the address of a node's agent.

    Args:
        hosts: names and addresses of the node, the most reliable first.

    Raises:
        OSError: the file cannot be written.
    """
    payload = {"hosts": hosts[:HOSTS_MAX], "port": port, "machine": machine_id()}
    text = json.dumps(payload)
    with whole_file(_address_path(directory, job, number), mode=0o600) as file:
        file.write(text.encode())


def read_addresses(directory: Path, job: str, number: int) -> list[tuple[str, int]]:
    """Return the published addresses of a node's agent, or an empty list."""
    found = read_address_file(_address_path(directory, job, number))
    return [(host, found.port) for host in found.hosts] if found is not None else []


def read_address_file(path: Path) -> AddressFile | None:
    """Return the content of an address file; None if it is invalid or another user's.

    A file of another user could direct this node only to processes without the secret.
    """
    try:
        fd = os.open(path, _READ_FLAGS)
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                return None
            payload = json.loads(file.read(ADDRESS_BYTES_MAX))
        hosts = tuple(str(host) for host in payload["hosts"])[:HOSTS_MAX]
        port, machine = int(payload["port"]), str(payload.get("machine", ""))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return AddressFile(hosts, port, machine) if hosts and 0 < port < 65536 else None


def remove_address(directory: Path, job: str, number: int) -> None:
    """Remove the published address of a node's agent."""
    _address_path(directory, job, number).unlink(missing_ok=True)


def machine_id() -> str:
    """Return the identity of this machine and network namespace; "" if unknown.

    On another machine or in another namespace, the same loopback address belongs to
    another agent.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/net')}"
    except OSError:
        return ""


def _address_path(directory: Path, job: str, number: int) -> Path:
    return directory / f"{job}.{number}.address"
