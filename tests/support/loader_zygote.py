"""A program that imports everything and forks ranks, which load at once.

It tells its own pid. Each line of its input is the plan of a rank, of which it tells
the pid too. A rank writes a line for each batch to a file, and why it has failed to
another one.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any

from monarch.loader import Batch, Loader


def load(plan: dict[str, Any]) -> None:
    """Load some epochs as one rank; say each batch and the state after it."""
    said = os.open(plan["said"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    rng = random.Random(plan["rank"])
    pauses = [rng.uniform(0, plan["pause_max_s"]) for _ in range(100)]
    options = plan["options"]
    with Loader(plan["path"], rank=plan["rank"], **options) as loader:
        if plan["state"] is not None:
            loader.load_state_dict(plan["state"])
        for number, batch in enumerate(rest_of(loader, plan["epochs"])):
            ids = batch.ids.tolist()
            for wanted, record in zip(ids, batch.records, strict=True):
                assert int.from_bytes(record[:8], "little") == wanted, wanted
            line = json.dumps([ids, loader.state_dict()]) + "\n"
            os.write(said, line.encode())
            time.sleep(pauses[number % len(pauses)])
    os.write(said, b'"end"\n')


def rest_of(loader: Loader, epochs: int) -> Iterator[Batch]:
    """Yield the batches of this epoch and the next ones."""
    while loader.state_dict()["epoch"] < epochs:
        yield from loader


def fork(plan: dict[str, Any]) -> int:
    """Start a rank."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.dup2(os.open(plan["errors"], os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        load(plan)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


def reap() -> None:
    """Take the ends of ranks: only here, so that no pid is used again too early."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print(os.getpid(), flush=True)
    for line in sys.stdin:
        reap()
        print(fork(json.loads(line)), flush=True)
