"""The limits of files and functions, held as tests by a ratchet."""

import json
from functools import cache
from pathlib import Path

import pytest

from support import csource, pysource
from support.sourcetree import files, offences

pytestmark = pytest.mark.usefixtures("at_the_root")

RATCHET = Path(__file__).with_name("tidy_ratchet.json")

# The target, and the maximum of any file; the ratchet moves between the two.
AIMS = {"file_lines": 350, "function_lines": 40, "nesting": 3, "arguments": 5}
WALLS = {"file_lines": 500, "function_lines": 70, "nesting": 3, "arguments": 5}
# A file is a topic; tables and entry points may be shorter, as may files that the
# ratchet still lists.
FILE_LINES_MIN = 60
SHORT_BY_NATURE = {"__init__.py", "__main__.py", "errors.py", "metrics.py"}


def short_files() -> list[str]:
    """The source files that are too short for a topic."""
    return [
        str(path)
        for path in files("*.py", "*.c", under="monarch")
        if path.name not in SHORT_BY_NATURE
        and path.read_text().count("\n") < FILE_LINES_MIN
    ]


def test_no_new_file_is_too_short_for_a_topic() -> None:
    known = json.loads(RATCHET.read_text())["short_files"]

    new = [path for path in short_files() if path not in known]

    assert not new, offences("Merge these with the file of their topic", new)


@cache
def worst_values() -> dict[str, list[tuple[int, str]]]:
    """Each limited quantity with its values and their places, the worst first."""
    values: dict[str, list[tuple[int, str]]] = {name: [] for name in WALLS}
    for path in files("*.py", "*.c", "*.h"):
        lines = path.read_text().count("\n")
        values["file_lines"].append((lines, f"{path}: {lines} lines"))
        reader = pysource if path.suffix == ".py" else csource
        for one in reader.measure(path):
            place = f"{one.place}: {one.name}"
            values["function_lines"].append((one.lines, f"{place}: {one.lines} lines"))
            values["nesting"].append(
                (one.nesting, f"{place}: {one.nesting} blocks deep")
            )
            if arguments_are_ours(path):
                text = f"{place}: {one.arguments} arguments"
                values["arguments"].append((one.arguments, text))
    return {name: sorted(found, reverse=True) for name, found in values.items()}


def arguments_are_ours(path: Path) -> bool:
    """False where fixtures, libc or libfuse decide the arguments."""
    foreign = path.match("test_*.py") or path.name in ("countfs.c", "tierfs.c")
    return not foreign and "shim" not in path.parts


@pytest.mark.parametrize("quantity", WALLS)
def test_sizes_stay_within_the_ratchet(quantity: str) -> None:
    limit = json.loads(RATCHET.read_text())[quantity]

    over = [text for value, text in worst_values()[quantity] if value > limit]

    assert limit <= WALLS[quantity]
    assert not over, offences(f"{quantity} may be {limit} at most", over)


def test_the_ratchet_tightens_and_never_loosens() -> None:
    assert tightened("function_lines", worst=44, limit=50) == 44
    assert tightened("function_lines", worst=55, limit=50) == 50
    assert tightened("function_lines", worst=12, limit=50) == AIMS["function_lines"]


def tightened(quantity: str, *, worst: int, limit: int) -> int:
    """The next limit: the worst of today, never above the limit before it."""
    return max(AIMS[quantity], min(worst, limit))


C_SAMPLE = r"""
/* a { comment */
#define OPEN(x) do { \
        x; } while (0)
struct pair { int a; };
static const char *const names[] = {"a {", "b"};
static int
twice(int (*call)(int, int), char mark)
{
    if (mark == '{') {
        for (;;) {
            call(1, 2);
        }
    }
    return 0;
}

__attribute__((visibility("default"))) void none(void)
{
}
"""


def test_the_c_scanner_measures_functions_and_nothing_else() -> None:
    found = list(csource.scan(C_SAMPLE, "sample.c"))

    assert [(f.place, f.name) for f in found] == [
        ("sample.c:7", "twice"),
        ("sample.c:18", "none"),
    ]
    assert [(f.lines, f.nesting, f.arguments) for f in found] == [(10, 2, 2), (3, 0, 0)]
    assert [f.public for f in found] == [False, True]


PY_SAMPLE = '''
def outer(self, a, b, *, c):
    """Two
    lines."""
    if a:
        pass
    elif b:
        with c:
            pass
'''


def test_the_python_reader_measures_functions(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text(PY_SAMPLE)

    [found] = pysource.measure(path)

    assert (found.lines, found.nesting, found.arguments) == (6, 2, 3)


def tighten() -> None:
    """Writes today's worst values as the limits of tomorrow; run this file for it."""
    limits = json.loads(RATCHET.read_text())
    for quantity, found in worst_values().items():
        worst = found[0][0]
        limits[quantity] = tightened(quantity, worst=worst, limit=limits[quantity])
    known = limits["short_files"]
    limits["short_files"] = [path for path in short_files() if path in known]
    RATCHET.write_text(json.dumps(limits, indent=4) + "\n")


if __name__ == "__main__":
    tighten()
