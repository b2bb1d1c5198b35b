"""The house rules of the source tree, held as tests."""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from support import csource, pysource

ROOT = Path(__file__).parents[2]
RATCHET = Path(__file__).with_name("tidy_ratchet.json")

# Imports point down this table, never sideways; see SIDEWAYS for the exceptions.
LAYERS = (
    {"monarch", "background", "metrics", "errors", "units", "atomic_file", "hostlist"},
    {"native"},
    {"config"},
    {"catalog", "placement", "peers.protocol", "peers.timeouts"},
    {"tiers", "origins", "cluster"},
    {
        "peers.connection",
        "peers.session",
        "peers.membership",
    },
    {"peers.addresses"},
    {
        "stager",
        "peers.client",
        "peers.server",
        "peers.hub",
        "peers.catalog_broadcast",
    },
    {"peers.mesh"},
    {"agent", "report"},
    {"mpi"},
    {"cli"},
    {"__main__"},
)
SIDEWAYS = {
    ("hostlist", "errors"),  # an invalid host list is a usage error
    ("peers.session", "peers.connection"),  # a session is what a joined one becomes
    ("agent", "report"),  # the agent ends with a report
}

# Parts of monarch/native that use another one than shared/.
NATIVE_PARTS = {("launcher", "job")}

FORBIDDEN_NAMES = {
    *("manager", "handler", "service", "helper", "util", "common", "misc", "context"),
    *("info", "data", "wrapper", "backend", "cache"),
}
# Leftovers of work, and paths that exist on one machine only.
LEFTOVERS = re.compile(
    r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b|(?<!\w)/(?:root|home|work)/\w"
)

# What is asked for, and what no file may exceed; the ratchet moves between the two.
AIMS = {"file_lines": 350, "function_lines": 40, "nesting": 3, "arguments": 5}
WALLS = {"file_lines": 500, "function_lines": 70, "nesting": 3, "arguments": 5}
# A file is a topic; tables and entry points may be shorter, and so may those files that
# the ratchet still lists.
FILE_LINES_MIN = 60
SHORT_BY_NATURE = {"__init__.py", "__main__.py", "errors.py", "metrics.py"}


def files(*patterns: str, under: str = ".") -> list[Path]:
    """The source files below a directory of the project, relative to its root."""
    hidden = {".venv", "build", "dist", "__pycache__", ".git"}
    found = [path for pattern in patterns for path in (ROOT / under).rglob(pattern)]
    relative = [path.relative_to(ROOT) for path in found]
    return sorted(path for path in relative if not hidden & set(path.parts))


def module_name(path: Path) -> str:
    """The dotted name of a Python file of the package."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def unit(module: str) -> str:
    """The row entry of LAYERS to which a module belongs."""
    parts = module.split(".")[1:] or ["monarch"]
    return ".".join(parts[:2]) if parts[0] == "peers" else parts[0]


def layer(module: str) -> int:
    """The number of the layer in which a module stands; -1 if the table lacks it."""
    for number, row in enumerate(LAYERS):
        if unit(module) in row:
            return number
    return -1


def offences(rule: str, found: list[str]) -> str:
    """The message of a broken rule."""
    return "\n  ".join([f"{rule}:", *found])


@pytest.fixture(scope="module")
def modules() -> dict[str, Path]:
    return {module_name(path): path for path in files("*.py", under="monarch")}


@pytest.fixture(scope="module", autouse=True)
def at_the_root() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        yield


def test_each_module_stands_in_the_layer_table(modules: dict[str, Path]) -> None:
    strangers = [f"{path}" for name, path in modules.items() if layer(name) < 0]

    # The folder peers/ itself belongs to no layer; its modules do.
    strangers = [path for path in strangers if path != "monarch/peers/__init__.py"]
    assert not strangers, offences("Give these a row in LAYERS", strangers)


def test_imports_point_down(modules: dict[str, Path]) -> None:
    wrong = []
    for name, path in modules.items():
        for line, target in pysource.imports(path, set(modules)):
            here, there = unit(name), unit(target)
            allowed = here == there or (here, there) in SIDEWAYS
            if not allowed and layer(target) >= layer(name):
                wrong.append(
                    f"{path}:{line}: layer {layer(name)} {here} imports"
                    f" layer {layer(target)} {there}"
                )

    assert not wrong, offences("Imports must point down", wrong)


def test_no_modules_import_each_other_in_a_circle(modules: dict[str, Path]) -> None:
    graph = {
        name: {m for _, m in pysource.imports(path, set(modules))} - {name}
        for name, path in modules.items()
    }

    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        pytest.fail("Import cycle: " + " -> ".join(cycle.args[1]))


def test_native_parts_include_only_themselves_and_what_is_shared() -> None:
    native = Path("monarch/native")
    wrong = [
        f"{path}: includes {name!r} of {home}"
        for path in files("*.c", "*.h", under=str(native))
        for name in csource.includes(path)
        if (home := included_home(path, name)) not in (path.parts[2], "shared")
        and (path.parts[2], home) not in NATIVE_PARTS
    ]

    assert not wrong, offences("Native parts meet only in shared/", wrong)


def included_home(path: Path, name: str) -> str:
    """The part of monarch/native in which a file finds what it includes."""
    for home in (path.parent, Path("monarch/native")):
        if (home / name).exists():
            target = (home / name).resolve().relative_to(ROOT)
            return target.parts[2]
    return "nowhere"


def test_no_c_files_include_each_other_in_a_circle() -> None:
    graph = {path: included(path) for path in native_c()}

    assert not circle(graph), offences("Include cycle", circle(graph))


def included(path: Path) -> set[Path]:
    """The files of monarch/native that a C file includes."""
    homes = (path.parent, Path("monarch/native"))
    return {home / name for name in csource.includes(path) for home in homes} & {
        *native_c("*.c", "*.h", "*.def")
    }


def native_c(*patterns: str) -> list[Path]:
    """The C files and headers of monarch/native, or the files of other patterns."""
    return files(*patterns or ("*.c", "*.h"), under="monarch/native")


def circle(graph: dict[Path, set[Path]]) -> list[str]:
    """The files of one cycle of a graph, in order, or none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        return [str(path) for path in cycle.args[1]]
    return []


def called() -> dict[Path, dict[str, set[Path]]]:
    """The calls of each C file; hooked names are libc's wherever they are called."""
    hooks = {
        word
        for path in native_c("*.def")
        for word in re.findall(r"\w+", path.read_text())
    }
    return {
        path: {name: there for name, there in calls.items() if name not in hooks}
        for path, calls in csource.calls(native_c()).items()
    }


def test_calls_between_native_parts_go_into_shared_only() -> None:
    """Calls by function pointers and in macros are not seen."""
    wrong = [
        f"{path}: calls {name}() of {target}"
        for path, calls in called().items()
        for name, targets in calls.items()
        for target in targets
        if target.parent not in (path.parent, Path("monarch/native/shared"))
        and (path.parent.name, target.parent.name) not in NATIVE_PARTS
    ]

    assert not wrong, offences("Native parts meet only in shared/", wrong)


def test_no_c_files_call_each_other_in_a_circle() -> None:
    """Calls by function pointers and in macros are not seen."""
    graph = {
        path: {target for targets in calls.values() for target in targets}
        for path, calls in called().items()
    }

    assert not circle(graph), offences("Call cycle", circle(graph))


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


def words(name: str) -> set[str]:
    """The words of a name in snake or camel case, in the singular too."""
    split = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    lower = {word.lower() for word in split}
    return lower | {word.removesuffix("s") for word in lower}


def test_no_name_hides_what_a_thing_is() -> None:
    wrong = []
    for path in files("*.py", "*.c", "*.h"):
        own = [(1, path.stem)] if path.stem != "__init__" else [(1, path.parent.name)]
        inside = pysource.classes if path.suffix == ".py" else csource.types
        for line, name in [*own, *inside(path)]:
            if bad := words(name) & FORBIDDEN_NAMES:
                wrong.append(f"{path}:{line}: {name} ({', '.join(sorted(bad))})")

    assert not wrong, offences("Say what the thing is instead", wrong)


def test_each_module_opens_with_one_sentence() -> None:
    wrong = []
    for path in files("*.py"):
        docstring = ast.get_docstring(pysource.parse(path)) or ""
        first = " ".join(docstring.split("\n\n")[0].split())
        if not first.endswith(".") or re.search(r"[.!?] [A-Z]", first):
            wrong.append(f"{path}:1: {first[:60]!r}")

    assert not wrong, offences("Open with one sentence that says what it is", wrong)


def test_each_c_file_opens_with_its_name_and_what_it_is() -> None:
    wrong = [
        f"{path}:1"
        for path in files("*.c", "*.h")
        if not path.read_text().startswith(f"/* {path.name} - ")
    ]

    assert not wrong, offences("Open with /* NAME - what it is", wrong)


def test_each_c_function_that_others_call_is_introduced() -> None:
    native = files("*.c", "*.h", "*.def", under="monarch/native")
    text = "\n".join(path.read_text() for path in native if path.suffix != ".def")
    hooks = "\n".join(path.read_text() for path in native if path.suffix == ".def")
    known = {"main", *re.findall(r"/\*+ (\w+) - ", text), *re.findall(r"\w+", hooks)}

    wrong = [
        f"{one.place}: {one.name}"
        for path in native
        if path.suffix == ".c"
        for one in csource.measure(path)
        if not one.name.startswith("_") and one.public and one.name not in known
    ]

    assert not wrong, offences("Say above it: /* NAME - one sentence", wrong)


def test_every_public_name_has_a_docstring() -> None:
    wrong = [
        f"{path}:{line}: {name}"
        for path in files("*.py", under="monarch")
        for line, name in pysource.undocumented(path)
    ]

    assert not wrong, offences("Say in a docstring what these do", wrong)


def test_nothing_unfinished_or_local_is_left_in_the_tree() -> None:
    patterns = ("*.py", "*.c", "*.h", "*.def", "*.md", "*.yaml", "*.toml", "*.txt")
    wrong = [
        f"{path}:{number}: {line.strip()[:70]}"
        for path in files(*patterns)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if LEFTOVERS.search(line)
    ]

    assert not wrong, offences("Finish it, or name no machine of your own", wrong)


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


def test_the_call_reader_follows_inline_functions_and_no_own_names(
    tmp_path: Path,
) -> None:
    header, one, two = (tmp_path / name for name in ("one.h", "one.c", "two.c"))
    header.write_text("static inline void peek(void) { deep(); }")
    one.write_text(
        "static void own(void) {} /* noted() */\n"
        "void top(struct s *x) { own(); peek(); x->member(1); }"
    )
    two.write_text(
        "void deep(void) {} void own(void) {}\nvoid member(int i) { top(0); }"
    )

    found = csource.calls([header, one, two])

    assert found == {one: {"deep": {two}}, two: {"top": {one}}}
    assert circle({path: set().union(*calls.values()) for path, calls in found.items()})


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
