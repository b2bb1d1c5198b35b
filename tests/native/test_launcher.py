"""The C tests of the launcher's pure parts, run bare and under the sanitizers."""

import subprocess
from pathlib import Path

import pytest

from support.launcher import NATIVE, compile_c

HERE = Path(__file__).parent
MODES = {
    "bare": [],
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
}


@pytest.mark.parametrize("mode", MODES)
def test_launcher_parts_pass(mode: str, tmp_path: Path) -> None:
    parts = [path for path in NATIVE.glob("launcher/*.c") if path.name != "main.c"]
    parts += [*NATIVE.glob("job/*.c"), *NATIVE.glob("shared/*.c")]
    sources = [*HERE.glob("launcher/*.c"), *parts]
    program = tmp_path / "parts"
    compile_c(program, *map(str, sources), *MODES[mode])

    done = subprocess.run(
        [program],
        capture_output=True,
        env={"ASAN_OPTIONS": "detect_leaks=0"},
        timeout=60,
    )

    assert done.stderr == b""
    assert done.returncode == 0
