"""An index is made by one of the processes that open a path at once, for all."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from monarch.records import open_records, saved
from support.countfs import CountFs
from support.loaders import numbered, write_tfrecord
from support.processes import kill

COUNT = 300
OPEN = """
import json, sys
from monarch.records import open_records
records = open_records(sys.argv[1])
print(json.dumps([records.indexed, len(records)]))
"""
HOLD = """
import sys
from monarch.records.saved import SavedRecordIndexes
with SavedRecordIndexes.of({"XDG_STATE_HOME": sys.argv[1]}).turn(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    return write_tfrecord(folder / "some.tfrecord", numbered(COUNT, most=9000))


def opened_by_four(path: Path) -> list[tuple[bool, int]]:
    line = [sys.executable, "-P", "-c", OPEN, str(path)]
    started = [
        subprocess.Popen(line, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    return [tuple(json.loads(one.communicate(timeout=60)[0])) for one in started]


@pytest.mark.usefixtures("state")
def test_one_of_four_processes_makes_the_index(
    packed: Path, mount_counted: Callable[..., CountFs]
) -> None:
    origin = mount_counted(packed.parent, read_us=2000)

    found = opened_by_four(origin.root / packed.name)

    assert sorted(found) == [(False, COUNT)] * 3 + [(True, COUNT)]
    assert origin.counts().reads <= 1.2 * COUNT


@pytest.mark.usefixtures("state")
def test_a_process_that_is_killed_ends_its_turn(
    packed: Path, mount_counted: Callable[..., CountFs]
) -> None:
    origin = mount_counted(packed.parent, read_us=20_000)
    line = [sys.executable, "-P", "-c", OPEN, str(origin.root / packed.name)]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL) as first:
        time.sleep(1)
        kill(first.pid)
    origin.set(read_us=0)

    assert len(open_records(origin.root / packed.name)) == COUNT


def test_a_turn_that_does_not_end_is_not_waited_for(
    packed: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved, "TURN_MAX_S", 0.5)
    line = [sys.executable, "-P", "-c", HOLD, str(state), f"{packed}::"]
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        os.kill(other.pid, signal.SIGSTOP)
        began = time.monotonic()
        records = open_records(packed)
        took_s = time.monotonic() - began
        kill(other.pid)

    assert (records.indexed, len(records)) == (True, COUNT)
    assert 0.5 <= took_s < 5


def test_indexes_are_made_even_where_nothing_can_be_written(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no-folder").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "no-folder"))

    assert len(open_records(packed)) == COUNT


INTERRUPTED = """
import sys, threading, _thread
from monarch.records import open_records
threading.Timer(1.0, _thread.interrupt_main).start()
open_records(sys.argv[1:])
"""
LEFT = """
import sys
from monarch.loader import Loader
for batch in Loader(sys.argv[1:], 10, start="early"):
    break
"""


@pytest.mark.parametrize(("program", "status"), [(INTERRUPTED, 1), (LEFT, 0)])
@pytest.mark.usefixtures("state")
def test_a_process_ends_while_an_index_is_made(
    packed: Path, mount_counted: Callable[..., CountFs], program: str, status: int
) -> None:
    for n in range(40):
        write_tfrecord(packed.parent / f"{n}.tfrecord", numbered(COUNT, most=9000))
    origin = mount_counted(packed.parent, bw=20 << 20, keep_ms=1000)
    paths = [str(path) for path in origin.root.iterdir()]
    size = sum(path.stat().st_size for path in packed.parent.iterdir())
    began = time.monotonic()

    done = subprocess.run(
        [sys.executable, "-P", "-c", program, *paths],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode in (status, -signal.SIGINT), done.stderr
    assert ("KeyboardInterrupt" in done.stderr) == bool(status)
    assert origin.counts().read_bytes < 0.9 * size
    assert time.monotonic() - began < 20


def test_directories_of_saved_indexes_are_private(tmp_path: Path, state: Path) -> None:
    shard = write_tfrecord(tmp_path / "one.tfrecord", numbered(COUNT))

    open_records(shard)

    made = [state, *(one for one in state.rglob("*") if one.is_dir())]
    assert len(made) > 2
    assert {one.stat().st_mode & 0o777 for one in made} == {0o700}
