"""The C tests of the launcher's pure parts, run bare and under the sanitizers."""

import subprocess
from pathlib import Path

import pytest

from support import compiler
from support.launcher import NATIVE, compile_c

HERE = Path(__file__).parent
MODES = {
    "bare": (),
    "address": compiler.ADDRESS,
}


@pytest.mark.parametrize("mode", MODES)
def test_launcher_parts_pass(mode: str) -> None:
    parts = [path for path in NATIVE.glob("launcher/*.c") if path.name != "main.c"]
    sources = [*HERE.glob("launcher/*.c"), *parts, *NATIVE.glob("shared/*.c")]
    program = compile_c("parts", *sorted(sources), *MODES[mode])

    done = subprocess.run(
        [program],
        capture_output=True,
        env={"ASAN_OPTIONS": "detect_leaks=0"},
        timeout=60,
    )

    assert done.stderr == b""
    assert done.returncode == 0
