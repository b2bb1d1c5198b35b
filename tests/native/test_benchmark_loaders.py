"""The benchmark of loaders: its datasets, its protocol, and its error checks."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "scripts" / "bench"
RECORDS, HALF = 200, 128
"""Two batches of 64 are the first part of an epoch."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A dataset that needs no package but Monarch's own."""
    folder = tmp_path / "data"
    folder.mkdir()
    run("make", "digests", folder, RECORDS)
    run("make", "tfrecord", folder / "tfrecord", RECORDS)
    return folder


def test_a_loader_yields_each_record_once_in_each_epoch(data: Path) -> None:
    ready, *epochs = read(data, steps_s=[0, 0])

    assert ready == {"ready": True, "can_resume": True}
    assert [(e["records"], e["distinct"], e["wrong"]) for e in epochs] == [
        (RECORDS, RECORDS, 0),
        (RECORDS, RECORDS, 0),
    ]
    assert 0 < epochs[0]["first_s"] < epochs[0]["seconds"]


def test_a_resumed_epoch_yields_the_remaining_records(data: Path) -> None:
    state = str(data.parent / "progress")

    _, first = read(data, steps_s=[0], state=state, stop=2)
    _, rest = read(data, steps_s=[0], state=state, resumes=True)

    assert len(first["numbers"]) == HALF
    assert sorted(first["numbers"] + rest["numbers"]) == list(range(RECORDS))


def test_a_record_with_other_bytes_is_wrong(data: Path) -> None:
    with (data / "tfrecord" / "000.tfrecord").open("r+b") as file:
        file.seek(100)  # in the first record, after its number
        byte = file.read(1)[0]
        file.seek(100)
        file.write(bytes([byte ^ 1]))

    _, epoch = read(data, steps_s=[0])

    assert (epoch["distinct"], epoch["wrong"]) == (RECORDS, 1)


def test_checksums_are_those_of_tfrecord() -> None:
    spec = importlib.util.spec_from_file_location(
        "loader_formats", BENCHMARKS / "loader_formats.py"
    )
    assert spec is not None
    assert spec.loader is not None
    loader_formats: Any = importlib.util.module_from_spec(spec)
    sys.modules["loader_formats"] = loader_formats
    spec.loader.exec_module(loader_formats)
    text = np.frombuffer(b"123456789", np.uint8)
    crc = 0xE3069283  # the check value of CRC-32C
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

    rows = np.stack([text, text[::-1], text])
    found = loader_formats.masked_crc(rows, np.array([9, 3, 9]))

    assert found.view("<u4")[[0, 2], 0].tolist() == [masked, masked]
    assert found.view("<u4")[1, 0] != masked


def read(data: Path, **plan: object) -> list[dict[str, Any]]:
    """The output of a process of Monarch's loader."""
    cache = data.parent / "cache"
    cache.mkdir(exist_ok=True)
    whole = {"reader": "monarch-tfrecord", "data": str(data), "cache": str(cache)}
    told = run("read", json.dumps(whole | plan), text="go\ngo\n")
    return [json.loads(line) for line in told.splitlines()]


def run(*words: object, text: str = "") -> str:
    """Run the program of all loaders to its end."""
    line = [sys.executable, BENCHMARKS / "loader_reader.py", *words]
    environ = {**os.environ, "PYTHONPATH": str(BENCHMARKS)}
    done = subprocess.run(
        [str(word) for word in line],
        env=environ,
        input=text,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
