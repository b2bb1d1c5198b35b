"""A loader in a job: its reads are staged, its order a hint, its figures reported."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monarch.records import open_records
from monarch.units import parse_size
from support.countfs import CountFs
from support.loaders import numbered, write_tfrecord

SHARDS, RECORDS = 30, 60

TRAIN = """
import sys
from monarch.loader import Loader

loader = Loader(sys.argv[1] + "/*.tfrecord", 32, group_bytes=90_000, seed=3,
    groups_in_flight=2, prefetch_batches=1)
for epoch in range(3):
    loader.set_epoch(epoch)
    found = [n for batch in loader for n in batch.ids.tolist()]
    assert len(set(found)) == len(found) == len(loader) * 32
"""


@pytest.fixture
def origin(tmp_path: Path, mount_counted: Callable[[Path], CountFs]) -> CountFs:
    source = tmp_path / "source"
    source.mkdir()
    for shard in range(SHARDS):
        write_tfrecord(source / f"{shard}.tfrecord", numbered(RECORDS, seed=shard))
    return mount_counted(source)


def job(
    command: Path, options: list[str], program: list[str], state: Path | str
) -> subprocess.CompletedProcess[str]:
    """Run a program under Monarch, which succeeds."""
    done = subprocess.run(
        [str(command), "run", *options, "--", *program],
        env={**os.environ, "XDG_STATE_HOME": str(state)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_loader_in_a_job_reads_the_origin_once_and_is_in_the_report(
    origin, tmp_path, run_root, monarch_command
):
    report = tmp_path / "report.json"
    saved = {"XDG_STATE_HOME": str(tmp_path / "state")}
    options = ["--data", str(origin.root), "--report", str(report)]
    options += ["--tier", f"ram:64MiB:{run_root}", "--set", "fill.enabled=false"]
    train = [sys.executable, "-P", "-c", TRAIN, str(origin.root)]

    # Building the index would open all files, and so stage them.
    index = open_records(f"{origin.root}/*.tfrecord", environ={**os.environ, **saved})
    index.close()
    origin.set(read_us=20_000, reset=1)  # hints arrive before the copies

    done = job(monarch_command, options, train, saved["XDG_STATE_HOME"])

    size = sum(path.stat().st_size for path in origin.source.iterdir())
    assert origin.counts().read_bytes <= 1.05 * size + parse_size("64KiB") * SHARDS
    found: dict[str, Any] = json.loads(report.read_text())
    told = found["loader"]
    assert told["ranks"] == 1
    assert told["records"] == told["batches"] * 32 == 3 * (SHARDS * RECORDS // 32) * 32
    assert told["requests"] > 0
    assert "loaders: 1 rank took" in done.stderr
    assert found["agent"]["hinted_files"] > 0
    assert found["agent"].get("agent_errors", 0) == 0


UNNAMED = """
import sys
from monarch.loader import Loader

for epoch in range(3):
    for batch in Loader(sys.argv[1] + "/*.tfrecord", 32):
        pass
"""


def test_loaders_that_no_variable_holds_are_in_the_report(
    origin, tmp_path, run_root, monarch_command
):
    report = tmp_path / "report.json"
    options = ["--data", str(origin.root), "--report", str(report)]
    options += ["--tier", f"ram:64MiB:{run_root}"]
    train = [sys.executable, "-P", "-c", UNNAMED, str(origin.root)]

    job(monarch_command, options, train, tmp_path / "state")

    told = json.loads(report.read_text())["loader"]
    assert told["records"] == told["batches"] * 32 == 3 * (SHARDS * RECORDS // 32) * 32


FIRST = """
import sys
from monarch.loader import Loader

with Loader(sys.argv[1] + "/*.tfrecord", 10, start=sys.argv[2]) as loader:
    found = [n for batch in loader for n in batch.ids.tolist()]
assert sorted(found) == list(range(1600))
"""


@pytest.mark.parametrize("start", ["whole", "early"])
def test_index_and_first_epoch_of_a_staged_job_read_the_origin_once(
    tmp_path, mount_counted, run_root, monarch_command, start
):
    source = tmp_path / "large"
    source.mkdir()
    for shard in range(4):
        values = numbered(400, most=24_000, seed=shard)
        write_tfrecord(source / f"{shard}.tfrecord", values)
    origin = mount_counted(source)
    options = ["--data", str(origin.root), "--tier", f"ram:256MiB:{run_root}"]
    train = [sys.executable, "-P", "-c", FIRST, str(origin.root), start]

    job(monarch_command, options, train, tmp_path / "state")

    size = sum(path.stat().st_size for path in source.iterdir())
    assert origin.counts().read_bytes <= 1.05 * size


TWICE = """
import sys
from monarch.loader import Loader

with Loader(sys.argv[1] + "/rows.npy", 10) as loader:
    for epoch in range(2):
        assert sum(len(batch) for batch in loader) == 4000
"""


def test_reads_of_a_file_that_fills_are_served(
    tmp_path, mount_counted, run_root, monarch_command
):
    """By the descriptor that was opened: this origin may change its inode numbers."""
    source, report = tmp_path / "large", tmp_path / "report.json"
    source.mkdir()
    np.save(source / "rows.npy", np.zeros((4000, 12_000), np.uint8))
    origin = mount_counted(source, bw=30_000_000)
    options = ["--data", str(origin.root), "--tier", f"ram:256MiB:{run_root}"]
    train = [sys.executable, "-P", "-c", TWICE, str(origin.root)]

    job(monarch_command, [*options, "--report", str(report)], train, tmp_path / "state")

    found: dict[str, Any] = json.loads(report.read_text())
    size = (source / "rows.npy").stat().st_size
    # A reader that starts late, on a busy machine, opens the whole copy.
    whole = size * found["counters"]["opens_hit_tier0"]
    assert found["reads"]["local_bytes"] + whole >= 1.8 * size
    assert origin.counts().read_bytes <= 1.05 * size
