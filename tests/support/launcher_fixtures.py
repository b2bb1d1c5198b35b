"""Fixtures of the launcher's tests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import compiler, processes
from support.launcher import SANITIZED, Launch, build, compile_c, layout

# Counts signals; a second one within the grace period would be counted too.
COUNTER = """
import signal, sys, time
got = []
for name in sys.argv[1:]:
    signal.signal(getattr(signal, name), lambda number, frame: got.append(number))
print("ready", flush=True)
while not got:
    signal.pause()
end = time.monotonic() + 0.3
while time.monotonic() < end:
    time.sleep(0.02)
print("got", *[signal.Signals(x).name for x in got], flush=True)
sys.exit(17)
"""


@pytest.fixture(scope="session")
def launcher_build() -> Path:
    """The launcher, with sanitizers if MONARCH_TEST_SANITIZE is set."""
    return build(*(compiler.ADDRESS if SANITIZED else ()))


@pytest.fixture(scope="session")
def launcher_layout() -> dict[str, Any]:
    """The layout of shared memory for the fake agent."""
    return layout()


@pytest.fixture
def launch(
    launcher_build: Path, launcher_layout: dict[str, Any], tmp_path: Path
) -> Iterator[Launch]:
    """A launcher whose agent follows a script."""
    launch = Launch(launcher_build, tmp_path, launcher_layout)
    launch.prepare()
    if SANITIZED:
        # The Shim comes before the sanitizer's library in a nested launcher.
        launch.environ["ASAN_OPTIONS"] = "verify_asan_link_order=0:detect_leaks=0"
    yield launch
    processes.kill_agents(f"{launch.run_root}/")


@pytest.fixture(scope="session")
def show() -> Path:
    """A program that prints everything it has inherited."""
    return compile_c("show", Path(__file__).with_name("show.c"))


@pytest.fixture
def counter(tmp_path: Path) -> Path:
    """A program that prints the signals it gets."""
    path = tmp_path / "counter.py"
    path.write_text(COUNTER)
    return path
