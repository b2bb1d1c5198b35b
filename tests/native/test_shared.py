"""The C tests of the shared layouts, run bare and under the sanitizers."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "monarch" / "native"
MODES = {
    "bare": [],
    "address": ["-fsanitize=address,undefined"],
    "thread": ["-fsanitize=thread"],
}


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "source", sorted((HERE / "shared").glob("test_*.c")), ids=lambda p: p.stem
)
def test_shared_c_program_passes(source: Path, mode: str, tmp_path: Path) -> None:
    program = tmp_path / source.stem
    includes = [f"-I{NATIVE / 'shared'}", f"-I{source.parent}"]
    sources = [source, *sorted((NATIVE / "shared").glob("*.c"))]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-g", "-O1", "-Wall", "-Wextra", "-Werror"]
    build = [
        "cc",
        *flags,
        *MODES[mode],
        *includes,
        "-o",
        program,
        *sources,
        "-lpthread",
    ]
    subprocess.run([str(word) for word in build], check=True)

    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
