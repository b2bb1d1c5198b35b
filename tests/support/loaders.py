"""Packed files whose Records contain their numbers, and ranks that load them."""

import json
import os
import random
import struct
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from monarch.records.streams import masked_crc
from support.processes import wait_until

RANK = """
import json, os, sys, time
from monarch.loader import Loader, LoaderError

options = json.loads(sys.argv[1])
plan = options.pop("plan")
told = {}
with Loader(plan["path"], **options) as loader:
    if plan.get("state"):
        loader.load_state_dict(plan["state"])
    batches, states = [], []
    for epoch in range(plan["epochs"]):
        for batch in loader:
            for number, record in zip(batch.ids.tolist(), batch.records, strict=True):
                assert int.from_bytes(record[:8], "little") == number, number
            batches.append(batch.ids.tolist())
            states.append(loader.state_dict())
            print(json.dumps([batches[-1], states[-1]]), flush=True)
            time.sleep(plan.get("pause_s", 0))
            if len(batches) == 1 and plan.get("meeting"):
                open(f"{plan['meeting']}/{options['rank']}", "w").close()
                while len(os.listdir(plan["meeting"])) < options["world_size"]:
                    time.sleep(0.01)
    print(json.dumps(loader.stats()), flush=True)
"""


def numbered(count: int, most: int = 3000, seed: int = 1) -> list[bytes]:
    """Records of different sizes; the first 8 bytes are the number."""
    rng = random.Random(seed)
    return [
        n.to_bytes(8, "little") + rng.randbytes(rng.randrange(most))
        for n in range(count)
    ]


def write_tfrecord(path: Path, values: Sequence[bytes]) -> Path:
    """Write Records; the checksums of payloads, which are never read, are 0."""
    with path.open("wb") as out:
        for value in values:
            length = struct.pack("<Q", len(value))
            out.write(length + struct.pack("<I", masked_crc(length)))
            out.write(value + bytes(4))
    return path


def write_tar(path: Path, values: Sequence[bytes]) -> Path:
    """Write a sample of one member for each Record."""
    with tarfile.open(path, "w") as out:
        for number, value in enumerate(values):
            member = tarfile.TarInfo(f"{number:06d}.bin")
            member.size = len(value)
            out.addfile(member, BytesIO(value))
    return path


class Rank:
    """A process that loads as one rank; its output is a file, as pipes fill."""

    def __init__(
        self, path: Path, plan: dict[str, Any] | None = None, **options: Any
    ) -> None:
        plan = {"path": str(path), "epochs": 1, **(plan or {})}
        folder = Path(mkdtemp(dir=path.parent))
        self._said, self._errors = folder / "said", folder / "errors"
        command = [sys.executable, "-P", "-c", RANK]
        with self._said.open("w") as out, self._errors.open("w") as err:
            self.process = subprocess.Popen(
                [*command, json.dumps({**options, "plan": plan})],
                stdout=out,
                stderr=err,
            )

    def said(self) -> list[Any]:
        """Return its output so far, without a partial line."""
        lines = self._said.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def first(self, count: int) -> list[Any]:
        """Return its output on its first batches."""
        wait_until(lambda: len(self.said()) >= count, "the first batches")
        return self.said()[:count]

    def ended(self, limit_s: float = 60) -> tuple[list[list[int]], dict[str, Any]]:
        """Return the Records of its batches, and its figures."""
        self.process.wait(limit_s)
        assert self.process.returncode == 0, self._errors.read_text()
        *said, stats = self.said()
        return [ids for ids, _ in said], stats

    def kill(self) -> None:
        """Kill it, if it still runs."""
        self.process.kill()
        self.process.wait()


def ranks(
    count: int, path: Path, plan: dict[str, Any] | None = None, **options: Any
) -> list[Rank]:
    """Start all ranks of a job on this node."""
    return [
        Rank(path, plan, rank=rank, world_size=count, **options)
        for rank in range(count)
    ]


def global_batches(of_ranks: Sequence[Sequence[list[int]]]) -> list[list[int]]:
    """Return the batches of all ranks together, in the order of the ranks."""
    return [[n for ids in parts for n in ids] for parts in zip(*of_ranks, strict=True)]


def readers() -> list[int]:
    """Return the pids of the readers of this machine that this user has started."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            command = (folder / "cmdline").read_bytes()
            is_own = folder.stat().st_uid == os.getuid()
        except OSError:
            continue
        if b"monarch.loader.reader" in command and is_own:
            found.append(int(folder.name))
    return found


def is_running(pid: int) -> bool:
    """Return whether a process is there and no zombie.

    Its first thread may be one while others end, which still have its sockets open.
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state != "Z" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False
