"""A job in a memory cgroup frees RAM before the kernel kills its program."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.certified import make_certified
from support.jobs import CERTIFIED
from support.processes import wait_until

MEMORY = Path("/sys/fs/cgroup/memory")
LIMIT_BYTES = 400 << 20
FILES = 120
MEAN_BYTES = 2 << 20

# Stages everything, then takes memory until little is left, and reads everything again.
GREEDY = """
import subprocess, sys, time
read = [sys.executable, sys.argv[1], sys.argv[2], "1", "1"]
subprocess.run(read, check=True)
held = []
for _ in range(int(sys.argv[3])):
    block = bytearray(1 << 20)
    block[::4096] = b"x" * 256
    held.append(block)
    time.sleep(0.02)
time.sleep(2.5)
subprocess.run(read, check=True)
"""


@pytest.fixture
def cgroup() -> Iterator[Path]:
    if not os.access(MEMORY / "cgroup.procs", os.W_OK):
        pytest.skip("needs a writable cgroup v1 memory controller")
    place = MEMORY / f"monarch-test-{os.getpid()}"
    place.mkdir()
    (place / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
    yield place
    wait_until(lambda: not (place / "cgroup.procs").read_text(), "end of the job")
    place.rmdir()


@pytest.mark.root
def test_ram_replicas_are_freed_before_the_program_is_killed(
    cgroup: Path, tmp_path: Path, run_root: Path, monarch_command: Path
) -> None:
    total = make_certified(tmp_path / "data", FILES, MEAN_BYTES)
    greed_mib = (LIMIT_BYTES - total) // (1 << 20)
    report = tmp_path / "report.json"
    assert greed_mib > 60
    program = [sys.executable, "-c", GREEDY, CERTIFIED, tmp_path / "data", greed_mib]
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="monarch-test-") as ram:
        tier = ["--data", tmp_path / "data", "--tier", f"ram:300MiB:{ram}"]
        run = [monarch_command, "run", *tier, "--report", report, "--", *program]
        shell = f'echo $$ >{cgroup}/cgroup.procs; exec "$@"'
        line = ["sh", "-c", shell, "sh", *map(str, run)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=100)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "memory" in json.dumps(json.loads(report.read_text())), done.stderr
