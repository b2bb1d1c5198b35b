"""Budgets of the copy engine alone: its rate and a cold open, beside plain copies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from table import Row

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import compiler

ROOT = Path(__file__).parents[2]
FILES, FILE_BYTES, ROUNDS = 4000, 110 << 10, 9
RATE_BUDGET = 0.8
COLD_BUDGET = 4.0
SEAL_BUDGET = 1.1


def build(folder: Path, *flags: str) -> Path:
    """Compile the benchmark with the engine's own sources."""
    program = folder / "engine"
    compile_with_engine(Path(__file__).with_suffix(".c"), program, *flags)
    return program


def compile_with_engine(source: Path, target: Path, *flags: str) -> None:
    """Compile a benchmark with the data plane's own sources, optimised.

    Args:
        flags: further words of the compiler, the last of which decides.
    """
    native, board = ROOT / "monarch" / "native", ROOT / "tests" / "native" / "dataplane"
    sources = [source, board / "board.c", board / "bytes.c"]
    sources += [board.parent / "segment_builder.c", *native.glob("job/*.c")]
    sources += [*native.glob("dataplane/*/*.c"), *native.glob("shared/*.c")]
    words = ["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", f"-I{board}", f"-I{native}"]
    words += ["-fPIC", *(flag for flag in flags if flag != "-shared")]
    parts = compiler.objects(words, sorted(sources))  # kept for the next benchmark
    line = ["cc", *flags, "-o", str(target), *map(str, parts), "-pthread", "-ldl"]
    subprocess.run(line, check=True)


def figures(work: Path) -> dict[str, tuple[float, float]]:
    """Run both sides in turn on tmpfs and return the two figures of each line."""
    words = [str(build(work)), str(FILES), str(FILE_BYTES), str(ROUNDS)]
    environment = {**os.environ, "TEST_BASE": str(work)}
    done = subprocess.run(
        words, check=True, capture_output=True, text=True, env=environment
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    return {name: (float(first), float(second)) for name, first, second in lines}


def seal_rows(found: dict[str, tuple[float, float]]) -> list[Row]:
    """Return what seals add to the processor's time; nothing without libcrypto."""
    if "sealed" not in found:
        return []
    sealed, engine, seal = found["sealed"], found["engine"], found["seal"]
    return [
        Row(
            "the same with seals (peers.integrity: mac), CPU",
            f"{sealed[0]:,.0f} files/s, {sealed[1]:.1f} us CPU each",
            f"without {engine[1]:.1f} us; the MAC alone {seal[1]:.1f} us, "
            f"{seal[0] / 1e3:.1f} GB/s",
            sealed[1] / engine[1],
            SEAL_BUDGET,
            at_least=False,
        )
    ]


def rows(found: dict[str, tuple[float, float]]) -> list[Row]:
    """Return the rows that stand for the engine without Python."""
    engine, loop = found["engine"], found["loop"]
    cold, copy = found["cold"], found["copy"]
    return [
        Row(
            "staging 110 KB files, tmpfs to tmpfs, 2 threads",
            f"{engine[0]:,.0f} files/s, {engine[1]:.0f} us CPU each",
            f"plain loop {loop[0]:,.0f} files/s, {loop[1]:.0f} us CPU",
            engine[0] / loop[0],
            RATE_BUDGET,
            at_least=True,
        ),
        *seal_rows(found),
        Row(
            "cold open of 110 KB, engine alone, p50",
            f"{cold[0]:.0f} us (p99 {cold[1]:.0f})",
            f"one plain copy {copy[0]:.0f} us (p99 {copy[1]:.0f})",
            cold[0] / copy[0],
            COLD_BUDGET,
        ),
    ]
