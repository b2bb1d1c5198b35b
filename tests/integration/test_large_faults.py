"""Whatever breaks while large files fill: right bytes or the origin's own error, and
room that is given back."""

import errno
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from monarch.agent.control import ask
from support import countfs, large_files
from support.changing_files import descriptors, files_below
from support.commands import Command, Ended
from support.countfs import CountFs
from support.jobs import Jobs
from support.large_files import name_of
from support.processes import WAIT_S, wait_until

MIB = 1 << 20
EXTENT = 8 * MIB
SIZES = (40 * MIB, 24 * MIB + 1000, 17 * MIB)
TOTAL = sum(SIZES)
BYTES_PER_S = 60_000_000
ROOM = "256MiB"

SoakCount = Callable[[int, int], int]


@dataclass(frozen=True, slots=True)
class Place:
    """Large files at an origin of a test's own, and jobs that read them."""

    jobs: Jobs
    origin: CountFs
    stop: Path

    def start(self, program: list[str], *options: str) -> Command:
        """Start a job whose Tier has room for all files by default."""
        tier = () if "--tier" in options else self.tier(self.jobs.ram)
        self.origin.reset()
        return self.jobs.start(["-q", *tier, *options], program)

    def tier(self, folder: Path) -> tuple[str, str]:
        """The option that names a Tier."""
        return "--tier", f"ssd:{ROOM}:{folder}"

    def reader(self, order: str, epochs: int) -> list[str]:
        """A program that reads all files and checks them; see check.c."""
        program = str(large_files.build("check"))
        return [program, order, str(epochs), str(self.stop), *self.paths]

    def then_once(self, program: list[str]) -> list[str]:
        """A program, and after it one pass over all files in order."""
        lines = [shlex.join(program), shlex.join(self.reader("order", 1))]
        return ["sh", "-c", "; ".join(lines)]

    @property
    def paths(self) -> list[str]:
        """The files."""
        return [str(self.origin.root / name_of(i)) for i in range(len(SIZES))]

    def read_some(self, least: int) -> None:
        """Wait until the origin has given so many bytes."""
        wait_until(lambda: self.origin.counts().read_bytes >= least, f"{least} bytes")

    def agent(self) -> psutil.Process:
        """The running agent."""
        return psutil.Process(self.jobs.wait_for_agent())

    def tier_report(self) -> Mapping[str, Any]:
        """The running agent's figures of its Tier."""
        [run] = self.jobs.run_root.iterdir()
        report = ask(run, {"op": "status"})["report"]
        return dict(report["tiers"][0])


@pytest.fixture
def place(
    tmp_path: Path, run_root: Path, monarch_command: Path, countfs_program: Path
) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="monarch-test-") as base:
        folders = [Path(base) / name for name in ("source", "origin", "tier")]
        for folder in folders:
            folder.mkdir()
        source, root, tier = folders
        play = str(large_files.build("play", *large_files.PLAY))
        subprocess.run([play, "make", source, *map(str, SIZES)], check=True)
        with countfs.mounted(countfs_program, source, root, bw=BYTES_PER_S) as origin:
            jobs = Jobs(monarch_command, root, run_root, tier)
            yield Place(jobs, origin, tmp_path / "stop")
            origin.set(stall="", bw=0)
            jobs.kill()


def told(ended: Ended) -> list[dict[str, int]]:
    """The results of each reader: "right" bytes, and the count of each error."""
    found: list[dict[str, int]] = []
    for line in ended.stdout.splitlines():
        name, *words = line.split()
        if name == "right":
            found.append({"right": int(words[0])})
        else:
            assert name == "errno", line
            found[-1][errno.errorcode[int(words[0])]] = int(words[1])
    return found


def held(
    folder: Path, agent: psutil.Process | None = None
) -> dict[int, os.stat_result]:
    """The large files of a Tier, by inode, and those without a name in an agent."""
    found = list(files_below(folder).values())
    for path in nameless(folder, agent) if agent else ():
        with suppress(FileNotFoundError):
            found.append(path.stat())
    return {one.st_ino: one for one in found if one.st_size > MIB}


def nameless(folder: Path, agent: psutil.Process) -> list[Path]:
    """What an agent has open below a Tier, as names of its descriptors."""
    leading = descriptors(agent.pid).items()
    return [path for path, to in leading if to.startswith(f"{folder}/")]


def next_job_is_clean(place: Place) -> None:
    """The next job reads right bytes, and nothing of any job is left in the Tier."""
    place.origin.set(bw=0)
    assert told(place.start(place.reader("order", 2)).end(WAIT_S).well()) == [
        {"right": 2 * TOTAL}
    ]
    wait_until(lambda: not place.jobs.leftovers(), "removal of run directories")
    wait_until(lambda: not held(place.jobs.ram), "removal of what was staged")
    place.origin.set(bw=BYTES_PER_S)


# -- the agent ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("way", ["order", "random", "share"])
def test_bytes_are_right_when_the_agent_is_killed_or_frozen_while_files_fill(
    place: Place, blow: signal.Signals, way: str, soak_count: SoakCount
) -> None:
    rng = random.Random(f"{blow} {way}")
    share = [str(large_files.build("share")), *place.paths]
    program = share if way == "share" else place.reader(way, 1)
    # Random pieces cover a part of all bytes.
    most = TOTAL // 3 if way == "random" else TOTAL * 9 // 10
    for _ in range(soak_count(1, 25)):
        job = place.start(program)
        agent = place.jobs.wait_for_agent()
        place.read_some(rng.randrange(most))

        os.kill(agent, blow)

        ended = job.end(WAIT_S).well()
        if way == "order":
            assert told(ended) == [{"right": TOTAL}]
        place.jobs.kill()
        next_job_is_clean(place)


def test_a_resumed_agent_stages_the_files_that_were_filling(place: Place) -> None:
    job = place.start(place.reader("order", 0))
    agent = place.agent()
    place.read_some(TOTAL // 4)

    agent.suspend()
    time.sleep(1.5)  # longer than the maximum delay of a heartbeat
    agent.resume()
    wait_until(lambda: place.tier_report()["files"] == len(SIZES), "staging of all")
    place.stop.touch()

    [found] = told(job.end(WAIT_S).well())
    assert found.keys() == {"right"}


# -- the Tier -------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 96 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "t", disk], check=True)
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def leave_no_room(disk: Path) -> Path:
    """Write until a file system is full."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(MIB // 4))
        except OSError:
            return ballast


@pytest.mark.root
@pytest.mark.parametrize("way", ["order", "random"])
def test_a_tier_that_is_full_after_half_a_file_frees_its_space(
    place: Place, small_disk: Path, way: str
) -> None:
    tier = ("--tier", f"ssd:90MiB:{small_disk}")
    job = place.start(place.reader(way, 0), *tier)
    agent = place.agent()
    place.read_some(TOTAL // 3)

    ballast = leave_no_room(small_disk)
    room = ballast.stat().st_size
    place.read_some(TOTAL)

    def room_is_given_back() -> bool:
        files = held(small_disk, agent)
        files.pop(ballast.stat().st_ino)
        most = sum(-(-one.st_size // EXTENT) * EXTENT for one in files.values())
        return bool(place.tier_report()["used_bytes"] <= most)

    assert room > EXTENT
    wait_until(room_is_given_back, "release of what was reserved for a file")
    place.stop.touch()
    [found] = told(job.end(WAIT_S).well())
    assert found.keys() == {"right"}
    assert set(small_disk.rglob("*")) - {ballast} == set(small_disk.glob("monarch-*"))


def test_files_removed_from_the_tier_while_they_fill_are_read_right(
    place: Place,
) -> None:
    job = place.start(place.reader("order", 0))
    place.jobs.wait_for_agent()
    place.read_some(TOTAL // 2)

    for path in files_below(place.jobs.ram):
        path.unlink(missing_ok=True)
    place.read_some(TOTAL)
    place.stop.touch()

    [found] = told(job.end(WAIT_S).well())
    assert found.keys() == {"right"}
    next_job_is_clean(place)


@pytest.mark.root
def test_a_byte_that_changes_on_disk_while_a_file_fills_reaches_no_other_job(
    place: Place,
) -> None:
    """A job trusts its own disk: checksums are compared where bytes change hands."""
    retain = ("--set", "retain=node")
    sleep = ["sh", "-c", f'while [ ! -e "{place.stop}" ]; do sleep 0.02; done']
    job = place.start(sleep, *retain)
    agent = place.agent()
    place.read_some(TOTAL // 2)

    named = files_below(place.jobs.ram)
    large = [path for path, one in named.items() if one.st_size > MIB]
    hurt = [flip(path) for path in (*large, *nameless(place.jobs.ram, agent))]
    wait_until(lambda: place.tier_report()["files"] == len(SIZES), "staging of all")
    place.stop.touch()
    job.end(WAIT_S).well()

    assert any(hurt)
    place.origin.set(bw=0)
    second = place.start(place.reader("order", 2), *retain)
    assert told(second.end(WAIT_S).well()) == [{"right": 2 * TOTAL}]


def flip(path: Path) -> bool:
    """Change one byte that has been filled; False if none exists yet."""
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        at = os.lseek(fd, 0, os.SEEK_DATA)
        byte = os.pread(fd, 1, at)
        return bool(byte) and os.pwrite(fd, bytes([byte[0] ^ 1]), at) == 1
    except OSError:
        return False
    finally:
        os.close(fd)


# -- the origin -----------------------------------------------------------------------


@pytest.mark.parametrize("way", ["order", "random"])
def test_an_origin_error_in_mid_file_reaches_the_program_and_no_wrong_byte_does(
    place: Place, way: str
) -> None:
    job = place.start(place.then_once(place.reader(way, 0)))
    place.jobs.wait_for_agent()
    place.read_some(TOTAL // 4)

    place.origin.set(read_eio=name_of(0))
    wait_until(lambda: place.origin.counts().failures > 0, "a read that fails")
    time.sleep(0.5)
    place.origin.set(read_eio="")
    place.stop.touch()

    first, second = told(job.end(WAIT_S).well())
    assert first.keys() <= {"right", "EIO"}
    assert second == {"right": TOTAL}
    next_job_is_clean(place)


def test_an_unreadable_file_returns_eio_as_without_monarch(
    place: Place,
) -> None:
    place.origin.set(read_eio=name_of(1))
    plain = subprocess.run(place.reader("order", 1), capture_output=True, text=True)

    job = place.start(place.reader("order", 1))

    ended = job.end(WAIT_S).well()
    assert ended.stdout == plain.stdout
    assert told(ended)[0]["EIO"] == -(-SIZES[1] // (256 << 10))


@pytest.mark.parametrize("way", ["order", "random"])
def test_an_origin_that_hangs_and_recovers_is_waited_for(
    place: Place, way: str
) -> None:
    job = place.start(place.then_once(place.reader(way, 0)))
    place.jobs.wait_for_agent()
    place.read_some(TOTAL // 4)

    place.origin.set(stall=name_of(0))
    time.sleep(2.5)
    assert job.is_running
    place.origin.set(stall="")
    place.stop.touch()

    first, second = told(job.end(WAIT_S).well())
    assert first.keys() == {"right"}
    assert second == {"right": TOTAL}
    next_job_is_clean(place)


def test_an_origin_that_is_slow_for_a_time_is_waited_for(place: Place) -> None:
    job = place.start(place.reader("order", 1))
    place.jobs.wait_for_agent()
    place.read_some(TOTAL // 4)

    place.origin.set(bw=1_000_000)
    time.sleep(2)
    place.origin.set(bw=0)

    assert told(job.end(WAIT_S).well()) == [{"right": TOTAL}]


READ_AMID_SIGNALS = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.pread.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_long)
libc.pread.restype = ctypes.c_ssize_t
fd, piece, size = os.open(sys.argv[1], os.O_RDONLY), 1 << 20, 40 << 20
buffer = ctypes.create_string_buffer(piece)
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 20e-6, 20e-6)
found = set()
for at in range(0, size, piece):
    ctypes.set_errno(77)
    found.add((libc.pread(fd, buffer, piece, at), ctypes.get_errno()))
signal.setitimer(signal.ITIMER_REAL, 0)
print(found)
"""


def test_a_read_that_waits_amid_signals_leaves_errno_as_it_was(place: Place) -> None:
    program = [sys.executable, "-c", READ_AMID_SIGNALS, place.paths[0]]
    ended = place.start(program).end(WAIT_S).well()
    assert ended.stdout == f"{ {(MIB, 77)} }\n"


def test_a_file_cut_at_the_origin_while_it_fills_ends_no_program(place: Place) -> None:
    """What a node elsewhere changes may be seen or not; it never is other bytes."""
    job = place.start(place.reader("random", 0))
    place.jobs.wait_for_agent()
    place.read_some(TOTAL // 4)

    os.truncate(place.origin.source / name_of(0), SIZES[0] // 2)
    place.read_some(TOTAL // 2)
    place.stop.touch()

    ended = job.end(WAIT_S)
    # A read behind the new end returns nothing; none returns bytes that never existed.
    wrong = [line for line in ended.stdout.splitlines() if line.startswith("WRONG")]
    assert all(f"{name_of(0)}: 0 bytes" in line for line in wrong), wrong[:3]
