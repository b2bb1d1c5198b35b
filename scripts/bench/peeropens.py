"""The budget of a cold open that a peer answers, timed by programs of a job.

Two nodes on this machine: when the second has read all files, those of which it is the
owner are ready there and nowhere else. Then readers on the first open all files at
once, as many as Files may be in flight; the report says how many a peer has answered.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import busy
from staging import build
from table import Row

READERS = 16
JOBS = 3
FILES = 256
FILE_BYTES = 110 << 10
WARM_S = 120.0
BUDGET = 0.6


def make_tree(work: Path) -> None:
    """Create the files, and the list of each reader."""
    body = os.urandom(FILE_BYTES)
    for reader in range(READERS):
        folder = work / "data" / f"r{reader}"
        folder.mkdir(parents=True)
        paths = [folder / f"{i:05d}" for i in range(FILES)]
        for path in paths:
            path.write_bytes(body)
        listed = "".join(f"{path}\n" for path in paths)
        (work / f"r{reader}.list").write_text(listed)


def read_all(work: Path) -> float:
    """Open all files by readers at the same time; the seconds that they took."""
    begin = time.perf_counter()
    words = [str(work / "opens")]
    readers = [
        subprocess.Popen([*words, str(work / f"r{i}.list"), "open", "1"])
        for i in range(READERS)
    ]
    codes = [reader.wait() for reader in readers]
    if any(codes):
        raise SystemExit("a reader has failed")
    return time.perf_counter() - begin


def touch_memory(work: Path) -> None:
    """Take and give back the memory for all files.

    A virtual machine gets each page from its host when it is touched first, which costs
    more than all that is measured here.
    """
    place = work / "touched"
    with place.open("wb", buffering=0) as file:
        for _ in range(READERS * FILES):
            file.write(bytes(FILE_BYTES))
    place.unlink()


def inside(work: Path) -> None:
    """Run on both nodes: the second prepares, the first is timed, cold and ready."""
    warm = work / "warm"
    if os.environ["BENCH_NODE"] == "1":
        read_all(work)
        warm.touch()
        return
    until = time.monotonic() + WARM_S
    while not warm.exists():
        if time.monotonic() > until:
            raise SystemExit("the other node never got ready")
        time.sleep(0.01)
    touch_memory(work)
    cold = read_all(work)
    (work / "seconds").write_text(f"{cold - read_all(work)}")  # readers take to start


def run_job(monarch: str, work: Path, variables: dict[str, str]) -> None:
    """Run the same command on both nodes, to its good end."""
    settings = ["fill.enabled=false", "peers.interface=127.0.0.1"]
    settings += [f"peers.rendezvous={work / 'meet'}"]
    words = [monarch, "run", "-q", "--hosts", "a,b", "--data", str(work / "data")]
    words += ["--tier", "ram:2GiB", "--report", str(work / "report.json")]
    words += [word for setting in settings for word in ("--set", setting)]
    jobs = []
    for number, name in enumerate("ab"):
        run = work / f"run-{name}"
        run.mkdir(mode=0o700)
        node = {"MONARCH_STAGING_NODE": name, "MONARCH_STAGING_RUN_DIR": str(run)}
        jobs.append(
            subprocess.Popen(
                [*words, "--", sys.executable, __file__, str(work)],
                env={**variables, **node, "BENCH_NODE": str(number)},
                stdout=subprocess.DEVNULL,
            )
        )
    codes = [job.wait() for job in jobs]
    if any(codes):
        raise SystemExit("a job of two nodes has failed")


def rate_of(monarch: str, folder: Path, *, is_busy: bool) -> float:
    """Return how many cold opens a peer answered in a second of a job."""
    (folder / "meet").mkdir(mode=0o700, parents=True)
    build(folder)
    make_tree(folder)
    run_job(monarch, folder, busy.environment(folder) if is_busy else dict(os.environ))
    report = json.loads((folder / "report.json").read_text())
    hits = int(report["counters"]["opens_peer_hit"])
    seconds = float((folder / "seconds").read_text())
    shutil.rmtree(folder)
    return hits / seconds


def measure(
    monarch: str, work: Path, landing_mb_per_s: float, *, is_busy: bool = False
) -> Row:
    """Time the opens of some jobs, beside what plain C receives into new files.

    Args:
        is_busy: a thread of Python is busy in both agents, and was beside plain C.
    """
    kind = "busy" if is_busy else "calm"
    rates = [
        rate_of(monarch, work / f"{kind}{i}", is_busy=is_busy) for i in range(JOBS)
    ]
    rate = statistics.median(rates)
    mb_per_s = rate * FILE_BYTES / 1e6
    return Row(
        f"cold opens of 110 KB that a peer answers, {READERS} readers"
        + (", while Python is busy" if is_busy else ""),
        f"{rate:,.0f} files/s, {mb_per_s:,.0f} MB/s",
        f"C receive into new files {landing_mb_per_s:,.0f} MB/s",
        mb_per_s / landing_mb_per_s,
        BUDGET,
        at_least=True,
    )


if __name__ == "__main__":
    inside(Path(sys.argv[1]))
