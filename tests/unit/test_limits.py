"""The limits of conftest.py hold: a late test fails and shows every thread."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]


def run_pytest(folder: Path, body: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_late.py").write_text(textwrap.dedent(body))
    config = HERE.parent / "pyproject.toml"
    script = (
        "import sys, pytest, conftest\n"
        "conftest.STUCK_GRACE_S = 0.5\n"
        "sys.exit(pytest.main(sys.argv[1:], plugins=[conftest]))\n"
    )
    # Without its own base this run would first remove the files of earlier runs.
    base = f"--basetemp={folder / 'base'}"
    words: list[str | Path] = [
        "-c",
        config,
        "--rootdir",
        folder,
        base,
        folder / "test_late.py",
    ]
    return subprocess.run(
        [sys.executable, "-c", script, *words],
        env={"PYTHONPATH": str(HERE), "PATH": "/usr/bin:/bin", "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_late_test_fails_and_shows_every_thread(tmp_path: Path) -> None:
    result = run_pytest(
        tmp_path,
        """
        import threading, pytest

        def lurk(event):
            event.wait()

        @pytest.mark.timeout(0.5)
        def test_late():
            event = threading.Event()
            threading.Thread(target=lurk, args=[event], daemon=True).start()
            event.wait()
        """,
    )

    assert result.returncode == pytest.ExitCode.TESTS_FAILED
    assert "Timeout" in result.stdout
    assert "in lurk" in result.stdout + result.stderr


def test_a_test_stuck_in_c_ends_the_run_with_a_dump(tmp_path: Path) -> None:
    result = run_pytest(
        tmp_path,
        """
        import ctypes, signal, pytest

        @pytest.mark.timeout(0.5)
        def test_stuck():
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
            ctypes.CDLL(None).pause()
        """,
    )

    assert result.returncode == 1
    assert "in test_stuck" in result.stderr
    assert "Timeout" in result.stderr
