"""`scripts/demo`, the first command that a new user runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import countfs

ROOT = Path(__file__).parents[2]
DEMO_TIMEOUT_S = 60


@pytest.mark.parametrize("own_origin", [True, False])
def test_demo_ends_with_the_seconds_of_both(run_root, tmp_path, own_origin) -> None:
    """MONARCH_DEMO names a slow directory where no slow one can be mounted."""
    if not own_origin and (why := countfs.missing()):
        pytest.skip(why)
    own = tmp_path / "own"
    own.mkdir()
    environ = {**os.environ, **({"MONARCH_DEMO": str(own)} if own_origin else {})}

    done = subprocess.run(
        [sys.executable, "-P", ROOT / "scripts" / "demo.py", "40"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=DEMO_TIMEOUT_S,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\nepoch ") == 6
    last = done.stdout.splitlines()[-1]
    assert re.fullmatch(r"== plain \d+\.\d s → Monarch \d+\.\d s, with .*", last)
    assert f"Origin: {own if own_origin else 'a FUSE mount'}" in done.stdout
    assert list(own.iterdir()) == []


def test_demo_of_a_missing_directory_is_refused(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", ROOT / "scripts" / "demo.py", "40"],
        env={**os.environ, "MONARCH_DEMO": str(tmp_path / "no")},
        capture_output=True,
        text=True,
        timeout=DEMO_TIMEOUT_S,
    )

    assert done.returncode == 2
    assert f"MONARCH_DEMO={tmp_path / 'no'}: there is no such directory" in done.stderr
