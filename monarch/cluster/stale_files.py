"""What the nodes of dead jobs have left where they met: secrets and addresses."""

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

from monarch.cluster.address_files import Left, machine, read_left
from monarch.cluster.names import NAME_MAX
from monarch.cluster.rendezvous_directory import SECRET_BYTES

# A job that starts has a secret before it has addresses, and then waits for its nodes.
NEWBORN_S: Final = 60.0
NAMELESS_S: Final = 3600.0
CONNECT_S: Final = 1.0
ASKED_MAX: Final = 16

_JOB: Final = rf"(?P<job>[A-Za-z0-9._-]{{1,{NAME_MAX}}})"
_KEY: Final = re.compile(rf"{_JOB}\.key")
_ADDRESS: Final = re.compile(rf"{_JOB}\.[0-9]+\.address")
_CENSUS: Final = re.compile(rf"{_JOB}\.nodes")


class Answer(Enum):
    """What comes of a connection to where an agent has listened."""

    ACCEPTS = "accepts"  # it lives, or another one has its port now
    REFUSES = "refuses"  # nobody listens there any more
    SILENT = "does not answer"  # which proves nothing
    NOTHING = "nothing"  # the name is unknown, or means another machine here


@dataclass(slots=True)
class Job:
    """What one job has left."""

    key: Path | None = None
    addresses: list[Path] = field(default_factory=list)
    census: Path | None = None

    @property
    def all(self) -> list[Path]:
        """Return all of it, the secret last."""
        first = [] if self.census is None else [self.census]
        last = [] if self.key is None else [self.key]
        return [*first, *sorted(self.addresses), *last]


@dataclass(frozen=True, slots=True)
class Remains:
    """What was removed, and why something was not."""

    removed: list[Path]
    kept: list[str]


def remove_remains(
    directory: Path, now_s: float, lives: Callable[[str], bool], *, usual: bool
) -> Remains:
    """Remove what jobs that are proved to be dead have left; keep all else.

    A job is dead if no agent of it lives on this node, and nobody listens any more at
    any of the addresses that its first nodes have left: no node could join it. A node
    that does not answer may live. Without addresses a job is dead after an hour, which
    is longer than nodes wait for each other.

    Args:
        lives: tells whether an agent of this job lives on this node.
        usual: nothing but Monarch's is in the directory, and a lone secret is one, too.
    """
    removed: list[Path] = []
    kept: list[str] = []
    for name, job in sorted(_jobs(directory, usual).items()):
        age_s = now_s - max(path.lstat().st_mtime for path in job.all)
        if age_s < (NEWBORN_S if job.addresses else NAMELESS_S) or lives(name):
            continue
        if doubt := _doubt(job):
            kept.append(f"kept what job {name} has left in {directory}: {doubt}")
        else:
            removed += [path for path in job.all if _remove(path)]
    return Remains(removed, kept)


def _ask(host: str, port: int, here: bool) -> Answer:
    """Connect to each address that a name stands for; the most alive answer counts.

    Args:
        here: the agent runs, or has run, on this machine; else this machine's own
            addresses for itself tell nothing of it.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return Answer.NOTHING
    answers = {
        _connect(family, place)
        for family, _, _, _, place in found
        if here or not ipaddress.ip_address(str(place[0]).split("%")[0]).is_loopback
    }
    for answer in (Answer.ACCEPTS, Answer.SILENT, Answer.REFUSES):
        if answer in answers:
            return answer
    return Answer.NOTHING


def _connect(family: int, place: Any) -> Answer:
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.settimeout(CONNECT_S)
        try:
            trial.connect(place)
        except ConnectionRefusedError:
            return Answer.REFUSES
        except OSError:
            return Answer.SILENT
    return Answer.ACCEPTS


def _jobs(directory: Path, usual: bool) -> dict[str, Job]:
    """Return the jobs that have left something of ours, by their names."""
    jobs: dict[str, Job] = {}
    with contextlib.suppress(OSError):
        for entry in [*os.scandir(directory)]:
            with contextlib.suppress(FileNotFoundError):
                _sort(jobs, Path(entry.path), entry.stat(follow_symlinks=False))
    return {n: job for n, job in jobs.items() if job.addresses or (usual and job.key)}


def _sort(jobs: dict[str, Job], path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        return
    regular = stat.S_ISREG(found.st_mode)
    if regular and (match := _ADDRESS.fullmatch(path.name)):
        jobs.setdefault(match["job"], Job()).addresses.append(path)
    elif regular and (match := _KEY.fullmatch(path.name)):
        if found.st_size in (0, SECRET_BYTES):
            jobs.setdefault(match["job"], Job()).key = path
    elif stat.S_ISDIR(found.st_mode) and (match := _CENSUS.fullmatch(path.name)):
        jobs.setdefault(match["job"], Job()).census = path


def _doubt(job: Job) -> str:
    """Return why a job may live; "" if it is proved to be dead."""
    for path in job.addresses:
        left = read_left(path)
        if left is None:
            continue  # nobody can find an agent by it
        answers = dict(zip(left.hosts, _answers(left), strict=True))
        for answer in (Answer.ACCEPTS, Answer.SILENT):
            hosts = [host for host in answers if answers[host] is answer]
            if hosts:
                return f"{hosts[0]}:{left.port} {answer.value}"
        if Answer.REFUSES not in answers.values():
            return f"{left.hosts[0]}:{left.port} cannot be found from here"
    return ""


def _answers(left: Left) -> Iterable[Answer]:
    here = bool(left.machine) and left.machine == machine()
    with ThreadPoolExecutor(ASKED_MAX) as threads:
        return [*threads.map(lambda host: _ask(host, left.port, here), left.hosts)]


def _remove(path: Path) -> bool:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return not path.exists()
    try:
        path.unlink()
    except OSError:
        return False
    return True
