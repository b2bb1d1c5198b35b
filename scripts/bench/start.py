"""Start budgets: when a program begins, with a scan, with a saved index, on many names.

The origin of the small files is the tests' counting file system without any latency,
mounted anew for each measurement. That of the many names is a tmpfs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from table import Row

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import countfs

FILES = 200_000
FEW_FILES = 4_000
FILE_BYTES = 1_000
PER_FOLDER = 1_000
KEPT_MS = 1000
TURNS = 3
NODES = 4
# The program prints when it has begun, and the peak memory of the agents.
PROGRAM = """
import glob, os, sys, time
print(time.time())
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        words = open(path, "rb").read().split(b"\\0")
        if os.fsencode(sys.argv[1]) in b" ".join(words) and b"agent" in words:
            status = open(os.path.dirname(path) + "/status").read()
            print(*[line for line in status.splitlines() if "VmHWM" in line])
    except OSError:
        pass
"""


def make_tree(root: Path, files: int, size: int) -> None:
    """Create files of some bytes in folders of a thousand."""
    body = b"x" * size
    for first in range(0, files, PER_FOLDER):
        folder = root / f"n{first // PER_FOLDER:08d}"
        folder.mkdir(parents=True)
        fd = os.open(folder, os.O_RDONLY)
        for number in range(first, min(files, first + PER_FOLDER)):
            name = f"image{number:040d}.jpeg"
            file = os.open(name, os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=fd)
            if body:
                os.write(file, body)
            os.close(file)
        os.close(fd)


class Jobs:
    """Runs jobs that do nothing, and tells when their programs began."""

    def __init__(self, monarch: str, work: Path) -> None:
        self._monarch = monarch
        self._work = work
        self.peak_mib = 0.0

    def start_s(self, root: Path, nodes: int = 1) -> float:
        """Return the seconds until all programs of one job have begun."""
        begin = time.time()
        running = [self._node(root, number, nodes) for number in range(nodes)]
        said = [process.communicate()[0] for process in running]
        if any(process.returncode for process in running):
            raise RuntimeError("a job has failed")
        peaks = [int(kib) for kib in re.findall(r"VmHWM:\s+(\d+) kB", "".join(said))]
        self.peak_mib = max([self.peak_mib, *(kib / 1024 for kib in peaks)])
        return max(float(text.split()[0]) for text in said) - begin

    def _node(self, root: Path, number: int, nodes: int) -> subprocess.Popen[str]:
        run_root = self._work / f"run{number}"
        environ = {
            **os.environ,
            "XDG_STATE_HOME": str(self._work / "state"),
            "MONARCH_STAGING_NODE": f"n{number}",
            "MONARCH_STAGING_RUN_DIR": str(run_root),
        }
        line = [self._monarch, "run", "-q", "--strict", "--data", str(root)]
        line += ["--tier", "ram:64MiB", "--set", "fill.enabled=false"]
        if nodes > 1:
            names = ",".join(f"n{n}" for n in range(nodes))
            line += ["--hosts", names, "--set", "peers.interface=127.0.0.1"]
        line += ["--", sys.executable, "-S", "-c", PROGRAM, str(run_root)]
        return subprocess.Popen(line, env=environ, stdout=subprocess.PIPE, text=True)

    def forget(self) -> None:
        """Remove all saved indexes."""
        for file in (self._work / "state").rglob("*.index"):
            file.unlink()


def find_s(root: Path) -> float:
    """Return the seconds in which find looks at the size of each file."""
    begin = time.perf_counter()
    line = ["find", str(root), "-size", "+0"]
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def fresh(work: Path, source: str, measure: Callable[[Path], float]) -> float:
    """Measure something on a mount whose client has seen nothing."""
    mount = work / "origin"
    mount.mkdir(exist_ok=True)
    with countfs.mounted(countfs.build(), work / source, mount, keep_ms=KEPT_MS):
        return measure(mount)


def few_files(jobs: Jobs, work: Path) -> list[Row]:
    """Time jobs over few files on one node and on several, with a scan and without."""
    make_tree(work / "few", FEW_FILES, FILE_BYTES)
    rows = []
    for nodes, budgets in ((1, (0.5, 0.35)), (NODES, (1.0, 1.0))):
        scans: list[float] = []
        seconds: list[float] = []
        for _ in range(TURNS):
            jobs.forget()
            for found in (scans, seconds):
                found.append(fresh(work, "few", partial(jobs.start_s, nodes=nodes)))
        of = f"{FEW_FILES:,} files, nodes: {nodes}, s"
        scan, saved = min(scans), min(seconds)
        rows += [
            Row(f"start with a scan of {of}", f"{scan:.2f} s", "-", scan, budgets[0]),
            Row(f"the next start, {of}", f"{saved:.2f} s", "-", saved, budgets[1]),
        ]
    return rows


def small_files(jobs: Jobs, work: Path) -> list[Row]:
    """Time jobs over many small files, with a scan and without."""
    make_tree(work / "small", FILES, FILE_BYTES)
    scans, finds, seconds = [], [], []
    for _ in range(TURNS):
        jobs.forget()
        scans.append(fresh(work, "small", jobs.start_s))
        finds.append(fresh(work, "small", find_s))
        seconds.append(fresh(work, "small", jobs.start_s))
    scan, find, second = min(scans), min(finds), min(seconds)
    what = f"start with a scan of {FILES:,} files"
    return [
        Row(what, f"{scan:.2f} s", f"{find:.2f} s find -size +0", scan / find, 1.2),
        Row("start of the next job, s", f"{second:.2f} s", "-", second, 0.6),
    ]


def many_names(jobs: Jobs, work: Path, names: int) -> list[Row]:
    """Time jobs over very many names, and tell their memory."""
    make_tree(work / "many", names, 0)
    scan = jobs.start_s(work / "many")
    saved = min(jobs.start_s(work / "many") for _ in range(TURNS))
    several = min(jobs.start_s(work / "many", NODES) for _ in range(TURNS))
    jobs.forget()
    jobs.start_s(work / "many", NODES)  # the memory of the node that scans and sends
    of = f"{names:,} names"
    return [
        Row(f"start from a saved index, {of}, s", f"{saved:.2f} s",
            f"{scan:.2f} s with a scan", saved, 2),
        Row(f"the same on {NODES} nodes, s", f"{several:.2f} s", "-", several, 2.5),
        Row(f"peak memory of an agent, {of}, MiB", f"{jobs.peak_mib:.0f} MiB", "-",
            jobs.peak_mib, 600),
    ]  # fmt: skip


def measure(monarch: str, work: Path, names: int) -> list[Row]:
    """Time the starts of jobs of both kinds."""
    jobs = Jobs(monarch, work)
    return [
        *few_files(jobs, work),
        *small_files(jobs, work),
        *many_names(jobs, work, names),
    ]
