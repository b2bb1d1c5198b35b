"""The C tests of the shared layouts, run bare and under the sanitizers."""

import shutil
import subprocess
from pathlib import Path

import pytest

from support import compiler

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "monarch" / "native"
MODES = {
    "bare": (),
    "address": ("-fsanitize=address,undefined",),
    "thread": compiler.THREAD,
}
CROSS = "aarch64-linux-gnu-gcc"
SOURCES = sorted((HERE / "shared").glob("test_*.c"))
# A program of one thread has no races.
CASES = [
    pytest.param(source, mode, id=f"{source.stem}-{mode}")
    for source in SOURCES
    for mode in MODES
    if mode != "thread" or "<pthread.h>" in source.read_text()
]


@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize(("source", "mode"), CASES)
def test_shared_c_program_passes(source: Path, mode: str) -> None:
    includes = [f"-I{NATIVE / 'shared'}", f"-I{source.parent}"]
    sources = [source, *sorted((NATIVE / "shared").glob("*.c"))]
    words = ["cc", "-std=gnu11", "-D_GNU_SOURCE", "-g", "-O1", *compiler.WARNINGS]
    words += [*MODES[mode], *includes]
    program = compiler.build(source.stem, *words, *sources, "-lpthread")

    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which(CROSS) is None, reason=f"no {CROSS}")
def test_native_parts_compile_for_aarch64() -> None:
    words = [CROSS, "-std=c11", "-D_GNU_SOURCE", "-fsyntax-only", *compiler.WARNINGS]
    sources = sorted(str(path) for path in NATIVE.rglob("*.c"))

    done = subprocess.run(
        [*words, f"-I{NATIVE}", *sources], capture_output=True, text=True
    )

    assert len(sources) > 50
    assert done.returncode == 0, done.stderr
