"""The native programs of the benchmarks compile with the current sources."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "scripts" / "bench"


@pytest.mark.timeout(400)  # a compiler that shares two processors with other tests
@pytest.mark.parametrize(
    ("name", "flags"),
    # The highest optimization takes long, and causes no warnings here.
    [("engine", ("-O0",)), ("large", ()), ("peers", ("-O0",))],
)
def test_benchmark_builds(name: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    script = (
        f"import pathlib, sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        f"import {name}; {name}.build(pathlib.Path({str(tmp_path)!r}), *{flags!r})"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr


FORMATS = {
    "tfrecord": None,
    "webdataset": None,
    "tar": None,
    "npy": None,
    "mp4": None,
    "hdf5-chunked": "h5py",
    "hdf5-contiguous": "h5py",
    "lmdb": "lmdb",
    "parquet": "pyarrow",
    "parquet-mapped": "pyarrow",
    "safetensors": "safetensors",
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_read_whole_by_the_parts_of_all_nodes(
    name: str, tmp_path: Path
) -> None:
    needed = FORMATS[name]
    if needed and importlib.util.find_spec(needed) is None:
        pytest.skip(f"needs {needed}")
    data, meetings = tmp_path / "data", tmp_path / "meetings"
    data.mkdir()
    of_format(["make", name, data, FORMAT_BYTES]).communicate()

    whole = sums(name, data, meetings / "alone", "everything", 1)
    parts = sums(name, data, meetings / "together", "dealt", 3)

    assert len(whole) == len(set(parts)) - 2 == 1
    assert sum(parts) % 2**64 == whole[0]


FORMAT_BYTES = 64 << 20


def of_format(words: list[object]) -> "subprocess.Popen[str]":
    """The program of all formats, which runs."""
    line = [sys.executable, BENCHMARKS / "format_files.py", *words]
    environ = {**os.environ, "PYTHONPATH": str(BENCHMARKS)}
    return subprocess.Popen(
        [str(word) for word in line], env=environ, stdout=subprocess.PIPE, text=True
    )


def sums(name: str, data: Path, meetings: Path, sharing: str, nodes: int) -> list[int]:
    """The output of the programs of all nodes on one epoch."""
    meetings.mkdir(parents=True)
    (meetings / "go").touch()
    running = [
        of_format(["read", name, data, node, nodes, sharing, 1, meetings])
        for node in range(nodes)
    ]
    told = [one.communicate()[0] for one in running]
    assert not any(one.returncode for one in running)
    return [int(line.split()[2]) for line in told]
