"""A program of one rank: reads all certified files and prints what it saw as JSON.

`-m support.rank ROOT [--mpi] [--fail RANK] [--until FILE]`; the standard library alone,
and mpi4py with --mpi: then all ranks meet before and after they read. RANK ends with 7
when it has read. With FILE every rank, when it has read, makes FILE.RANK,
touches it again and again, notes in it each signal TERM and USR1, and reads once more
when there is a FILE.
"""

import argparse
import json
import os
import signal
import time
from pathlib import Path

from support.certified import is_right

# Slurm last: if it started the daemons of an MPI, its number is theirs.
RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
FAILED = 7
POLL_S = 0.01


def own_rank() -> int:
    """The number that the launcher has given to this process; 0 without a launcher."""
    return int(next((os.environ[name] for name in RANKS if name in os.environ), 0))


def ranks_that_meet() -> int:
    """Wait for all ranks; return how many they are."""
    from mpi4py import MPI

    return int(MPI.COMM_WORLD.allreduce(1))


def wrong_files(root: Path) -> list[str]:
    """The names of the files that do not read as they were written."""
    names = sorted(str(path.relative_to(root)) for path in root.rglob("part*"))
    assert names, f"no files in {root}"
    return [name for name in names if not is_right(root, name)]


def wait_for(file: Path, own: Path) -> list[int]:
    """Announce that this rank waits, wait for the file, return the signals."""
    got: list[int] = []
    for signo in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(signo, lambda number, _: got.append(number))
    while not file.exists():
        own.write_text("".join(f"{number}\n" for number in got))
        time.sleep(POLL_S)
    return got


def main() -> None:
    """Read, wait if asked to, print, fail if asked to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--mpi", action="store_true")
    parser.add_argument("--fail", type=int)
    parser.add_argument("--until", type=Path)
    options = parser.parse_args()
    rank, got = own_rank(), []
    size = ranks_that_meet() if options.mpi else None
    wrong = wrong_files(options.root)
    if options.until:
        got = wait_for(options.until, Path(f"{options.until}.{rank}"))
        wrong += wrong_files(options.root)
    seen = {
        "rank": rank,
        "size": size,
        "node": os.environ.get("SLURMD_NODENAME"),
        "run": os.environ.get("MONARCH_STAGING_RUN"),
        "wrong": wrong,
        "signals": got,
    }
    if rank == options.fail:
        os._exit(FAILED)  # without MPI's own end, which would wait for the others
    if options.mpi:
        ranks_that_meet()
    # In one write: ranks share the pipe of their launcher.
    os.write(1, json.dumps(seen).encode() + b"\n")


if __name__ == "__main__":
    main()
