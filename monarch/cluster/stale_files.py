"""Removes the files of dead jobs from a rendezvous directory."""

import contextlib
import ipaddress
import os
import re
import shutil
import socket
import stat
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from monarch.cluster.rendezvous_directory import (
    SECRET_BYTES,
    AddressFile,
    machine_id,
    read_address_file,
)
from monarch.native import NAME_MAX

# A job that starts has a secret before it has addresses, and then waits for its nodes.
NEW_JOB_S: Final = 60.0
NO_ADDRESS_S: Final = 3600.0
CONNECT_S: Final = 1.0
PROBES_MAX: Final = 16

_JOB: Final = rf"(?P<job>[A-Za-z0-9._-]{{1,{NAME_MAX}}})"
_SECRET: Final = re.compile(rf"{_JOB}\.key")
_ADDRESS: Final = re.compile(rf"{_JOB}\.[0-9]+\.address")
_RANKS: Final = re.compile(rf"{_JOB}\.nodes")


class Probe(Enum):
    """The result of a connection to the address of an agent."""

    ACCEPTS = "accepts"  # it is alive, or another process uses its port now
    REFUSES = "refuses"  # no process listens there
    TIMED_OUT = "does not answer"  # which proves nothing
    UNKNOWN = "unknown"  # the name is unknown, or means another machine here


@dataclass(slots=True)
class JobFiles:
    """The files of one job."""

    secret: Path | None = None
    addresses: list[Path] = field(default_factory=list)
    ranks: Path | None = None

    @property
    def all(self) -> list[Path]:
        """Return all files, the secret last."""
        first = [] if self.ranks is None else [self.ranks]
        last = [] if self.secret is None else [self.secret]
        return [*first, *sorted(self.addresses), *last]


@dataclass(frozen=True, slots=True)
class StaleFiles:
    """The removed files, and a line for each job whose files were kept."""

    removed: list[Path]
    kept: list[str]


def remove_stale_files(
    directory: Path, now_s: float, is_alive: Callable[[str], bool], *, default: bool
) -> StaleFiles:
    """Remove the files of jobs that are proved to be dead; keep all others.

    A job is dead if no agent of it is alive on this node, and no process listens at
    any of the addresses that its first nodes have published: no node could join it. A
    node that does not answer may be alive. Without addresses a job is dead after an
    hour, which is longer than nodes wait for each other.

    Args:
        is_alive: returns whether an agent of this job is alive on this node.
        default: it is Monarch's own directory, where a secret without addresses belongs
            to a job, too.
    """
    removed: list[Path] = []
    kept: list[str] = []
    for name, job in sorted(_jobs(directory, default).items()):
        age_s = now_s - max(path.lstat().st_mtime for path in job.all)
        if age_s < (NEW_JOB_S if job.addresses else NO_ADDRESS_S) or is_alive(name):
            continue
        if reason := _sign_of_life(job):
            kept.append(f"kept the files of job {name} in {directory}: {reason}")
        else:
            removed += [path for path in job.all if _remove(path)]
    return StaleFiles(removed, kept)


# -- finding jobs -------------------------------------------------------------------


def _jobs(directory: Path, default: bool) -> dict[str, JobFiles]:
    """Return the jobs that have files of this user, by their names."""
    jobs: dict[str, JobFiles] = {}
    with contextlib.suppress(OSError):
        for entry in [*os.scandir(directory)]:
            with contextlib.suppress(FileNotFoundError):
                _add(jobs, Path(entry.path), entry.stat(follow_symlinks=False))
    return {
        name: job
        for name, job in jobs.items()
        if job.addresses or (default and job.secret)
    }


def _add(jobs: dict[str, JobFiles], path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        return
    regular = stat.S_ISREG(found.st_mode)
    if regular and (match := _ADDRESS.fullmatch(path.name)):
        jobs.setdefault(match["job"], JobFiles()).addresses.append(path)
    elif regular and (match := _SECRET.fullmatch(path.name)):
        if found.st_size in (0, SECRET_BYTES):
            jobs.setdefault(match["job"], JobFiles()).secret = path
    elif stat.S_ISDIR(found.st_mode) and (match := _RANKS.fullmatch(path.name)):
        jobs.setdefault(match["job"], JobFiles()).ranks = path


def _remove(path: Path) -> bool:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return not path.exists()
    try:
        path.unlink()
    except OSError:
        return False
    return True


# -- probing agents -----------------------------------------------------------------


def _sign_of_life(job: JobFiles) -> str:
    """Return why a job may be alive; "" if it is proved to be dead."""
    for path in job.addresses:
        found = read_address_file(path)
        if found is None:
            continue  # no node can find an agent by it
        results = dict(zip(found.hosts, _probe_all(found), strict=True))
        for result in (Probe.ACCEPTS, Probe.TIMED_OUT):
            hosts = [host for host in results if results[host] is result]
            if hosts:
                return f"{hosts[0]}:{found.port} {result.value}"
        if Probe.REFUSES not in results.values():
            return f"{found.hosts[0]}:{found.port} cannot be resolved from this node"
    return ""


def _probe_all(found: AddressFile) -> Iterable[Probe]:
    is_here = bool(found.machine) and found.machine == machine_id()
    with ThreadPoolExecutor(PROBES_MAX) as threads:
        return [
            *threads.map(lambda host: _probe(host, found.port, is_here), found.hosts)
        ]


def _probe(host: str, port: int, is_here: bool) -> Probe:
    """Connect to every address of a host name and return the best result.

    Args:
        is_here: the agent runs, or has run, on this machine; if not, the loopback
            addresses of this machine prove nothing about it.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return Probe.UNKNOWN
    results = {
        _connect(family, address)
        for family, _, _, _, address in found
        if is_here
        or not ipaddress.ip_address(str(address[0]).split("%")[0]).is_loopback
    }
    for result in (Probe.ACCEPTS, Probe.TIMED_OUT, Probe.REFUSES):
        if result in results:
            return result
    return Probe.UNKNOWN


def _connect(family: int, address: Any) -> Probe:
    with socket.socket(family, socket.SOCK_STREAM) as peer_socket:
        peer_socket.settimeout(CONNECT_S)
        try:
            peer_socket.connect(address)
        except ConnectionRefusedError:
            return Probe.REFUSES
        except OSError:
            return Probe.TIMED_OUT
    return Probe.ACCEPTS
