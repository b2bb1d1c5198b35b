"""The native programs of the benchmarks build with the sources of today."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "scripts" / "bench"


@pytest.mark.parametrize("name", ["engine", "large", "peers"])
def test_benchmark_builds(name: str, tmp_path: Path) -> None:
    script = (
        f"import pathlib, sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        f"import {name}; {name}.build(pathlib.Path({str(tmp_path)!r}))"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
