"""The launcher's pure parts, run bare and under the sanitizers, and their order."""

import re
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
    parts += [*NATIVE.glob("job/*.c"), *NATIVE.glob("shared/*.c")]
    sources = [*HERE.glob("launcher/*.c"), *parts]
    program = compile_c("parts", *sorted(sources), *MODES[mode])

    done = subprocess.run(
        [program],
        capture_output=True,
        env={"ASAN_OPTIONS": "detect_leaks=0"},
        timeout=60,
    )

    assert done.stderr == b""
    assert done.returncode == 0


def test_each_file_calls_only_files_above_it_in_the_header() -> None:
    header = (NATIVE / "launcher/launcher.h").read_text()
    _, *parts = re.split(r"^/\* -- (\w+\.c):", header, flags=re.MULTILINE)
    names, sections = parts[::2], parts[1::2]
    files = {path.name for path in NATIVE.glob("launcher/*.c")}

    assert {*names, "main.c"} == files
    for number, name in enumerate(names):
        text = (NATIVE / "launcher" / name).read_text()
        below = re.findall(r"\b(\w+)\([^)]", "".join(sections[number + 1 :]))
        declared = {word for word in below if not word.startswith("_")}
        called = set(re.findall(r"\b(\w+)\(", text))
        assert not called & declared - {"format"}, name
