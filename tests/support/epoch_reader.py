"""A program of one node: reads certified files in epochs and records each open.

`epoch_reader.py PLAN.json`, on each node with its number in READER_NODE; the plan is
what `support.nodes.Plan` writes. The standard library alone. The processes of all
nodes begin each epoch together, by files in a common directory: each leaves its own,
and waits for those of the others and for as long as there is a file `hold-EPOCH`.
"""

import hashlib
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

HEAD_BYTES = 16
POLL_S = 0.005
STREAM_BYTES = 1 << 20
# A Block, as record readers use, and, for random places, no divisor of one.
PIECES = {"order": 256 << 10, "random": 100_003}


class Reader:
    """One process of one node."""

    def __init__(self, plan: dict[str, Any], node: int, worker: int) -> None:
        self.plan = plan
        self.node = node
        self.worker = worker
        self.origin = plan["root"] + "/"
        self.opens: list[tuple[int, int, float, float, bool]] = []
        self.wrong: list[str] = []
        self.spans: list[tuple[float, float]] = []
        self.longest_s = 0.0

    def run(self) -> bool:
        """Read all epochs of this node; return whether all was right."""
        for epoch in range(self.plan["epochs"][self.node]):
            self.meet(epoch)
            begin_s = time.monotonic()
            for number in self.share(epoch):
                self.read(epoch, number)
                time.sleep(self.plan["pause_s"])
            self.spans.append((begin_s, time.monotonic()))
        return not self.wrong

    def share(self, epoch: int) -> Iterator[int]:
        """The numbers of the files that are this process's in an epoch."""
        workers, sharding = self.plan["workers"], self.plan["sharding"]
        place = self.parties(epoch, before=self.node) + self.worker
        of = self.parties(epoch)
        seed = f"{self.plan['seed']}.{epoch}"
        if sharding == "everything":
            seed, place, of = f"{seed}.{self.node}", self.worker, workers
        elif sharding in ("together", "parts"):
            place, of = 0, 1
        order = list(range(len(self.plan["files"])))
        random.Random(seed).shuffle(order)
        return iter(order[place::of])

    def parties(self, epoch: int, before: int | None = None) -> int:
        """How many processes take part in an epoch, of all nodes or of earlier ones."""
        epochs = self.plan["epochs"][:before]
        return sum(self.plan["workers"] for last in epochs if last > epoch)

    def meet(self, epoch: int) -> None:
        """Wait until all processes have reached this point."""
        folder = self.plan["meetings"]
        here = f"{folder}/at-{epoch}"
        os.makedirs(here, exist_ok=True)
        Path(here, f"{self.node}.{self.worker}").touch()
        while len(os.listdir(here)) < self.parties(epoch) or os.path.exists(
            f"{folder}/hold-{epoch}"
        ):
            time.sleep(POLL_S)

    def read(self, epoch: int, number: int) -> None:
        """Read and judge one file, and note how long its open took."""
        name = self.plan["files"][number]
        begin_s = time.monotonic()
        try:
            fd = os.open(self.origin + name, os.O_RDONLY)
            delay_s = time.monotonic() - begin_s
            place = os.readlink(f"/proc/self/fd/{fd}")
            at_origin = place.startswith(self.origin)
            self.opens.append((epoch, number, begin_s, delay_s, at_origin))
            with open(fd, "rb", buffering=0) as file:
                if self.plan["reading"] == "stream":
                    self.judge(name, file)
                else:
                    self.read_pieces(epoch, name, fd)
        except OSError as error:
            self.wrong.append(f"{name}: {error}")

    def judge(self, name: str, file: FileIO) -> None:
        """Read a file to its end; its head must be that of its bytes."""
        content = b"".join(iter(lambda: file.read(STREAM_BYTES), b""))
        body = content[HEAD_BYTES:]
        head = hashlib.blake2b(name.encode() + body, digest_size=HEAD_BYTES).digest()
        if content[:HEAD_BYTES] != head:
            self.wrong.append(f"{name}: wrong bytes, {len(content)} of them")

    def read_pieces(self, epoch: int, name: str, fd: int) -> None:
        """Compare the pieces of this process with those behind the origin."""
        with open(f"{self.plan['source']}/{name}", "rb", buffering=0) as right:
            for at, size in self.pieces(epoch, name, os.fstat(fd).st_size):
                begin_s = time.monotonic()
                try:
                    found = pread_all(fd, size, at)
                except OSError as error:
                    self.wrong.append(f"epoch {epoch}: {name} at {at}: {error}")
                    continue
                self.longest_s = max(self.longest_s, time.monotonic() - begin_s)
                if found != os.pread(right.fileno(), size, at):
                    what = f"wrong bytes, {len(found)} of {size}"
                    self.wrong.append(f"epoch {epoch}: {name} at {at}: {what}")

    def pieces(self, epoch: int, name: str, size: int) -> list[tuple[int, int]]:
        """Where the pieces of this process in a file lie, as it reads them."""
        reading, place, of = self.plan["reading"], 0, 1
        if self.plan["sharding"] == "parts":
            of = self.parties(epoch)
            place = (self.parties(epoch, before=self.node) + self.worker + epoch) % of
        first, end, step = size * place // of, size * (place + 1) // of, PIECES[reading]
        found = [(at, min(step, end - at)) for at in range(first, end, step)]
        if reading == "random":
            seed = f"{self.plan['seed']}.{epoch}.{name}.{self.node}.{self.worker}"
            random.Random(seed).shuffle(found)
        return found

    def write(self) -> None:
        """Leave the notes of this process."""
        notes = {
            "opens": self.opens,
            "wrong": self.wrong,
            "spans": self.spans,
            "longest_s": self.longest_s,
        }
        place = Path(self.plan["notes"], f"{self.node}.{self.worker}.json")
        place.write_text(json.dumps(notes))


def pread_all(fd: int, size: int, at: int) -> bytes:
    """So many bytes, or those up to the end: an error may make a read shorter first."""
    found = b""
    while more := os.pread(fd, size - len(found), at + len(found)):
        found += more
    return found


def work(plan: dict[str, Any], node: int, worker: int) -> bool:
    """Be one process: read, and leave notes whatever happens."""
    reader = Reader(plan, node, worker)
    try:
        return reader.run()
    finally:
        reader.write()


def main() -> int:
    """Read with the processes of this node; 1 if anything was not right."""
    plan = json.loads(Path(sys.argv[1]).read_text())
    node = int(os.environ["READER_NODE"])
    children = []
    for worker in range(plan["workers"]):
        pid = os.fork()
        if pid == 0:
            os._exit(0 if work(plan, node, worker) else 1)
        children.append(pid)
    ends = [os.waitpid(pid, 0)[1] for pid in children]
    return 1 if any(ends) else 0


if __name__ == "__main__":
    sys.exit(main())
