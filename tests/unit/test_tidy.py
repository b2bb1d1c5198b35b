"""The house rules of the source tree, held as tests."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from support import csource, pysource
from support.sourcetree import (
    called,
    circle,
    files,
    included,
    included_home,
    module_name,
    native_c,
    offences,
)

pytestmark = pytest.mark.usefixtures("at_the_root")

# Imports point down this table, never sideways; see SIDEWAYS for the exceptions.
LAYERS = (
    {
        *("monarch", "background", "metrics", "errors", "units", "atomic_file"),
        *("hostlist", "kept_files", "codec"),
    },
    {"native"},
    {"config"},
    {"catalog", "placement", "selector", "peers.protocol", "peers.timeouts"},
    {"tiers", "origins", "cluster", "records"},
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
    {"agent", "report", "loader"},
    {"mpi", "doctor", "integrations"},
    {"cli"},
    {"launched"},
    {"__main__"},
)
SIDEWAYS = {
    ("hostlist", "errors"),  # an invalid host list is a usage error
    ("peers.session", "peers.connection"),  # a session is the state after joining
    ("agent", "report"),  # the agent ends with a report
    ("records", "cluster"),  # records that are staged need no memory of their own
    ("records", "tiers"),  # free memory decides whether shards are read whole
    ("loader", "agent"),  # a loader under `monarch run` sends the agent its figures
}

# Parts of monarch/native that use another part than shared/.
NATIVE_PARTS = {("launcher", "job")}

FORBIDDEN_NAMES = {
    *("manager", "handler", "service", "helper", "util", "common", "misc", "context"),
    *("info", "data", "wrapper", "backend", "cache"),
}
# Unfinished work, and paths that exist on one machine only.
LEFTOVERS = re.compile(
    r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b|(?<!\w)/(?:root|home|work)/\w"
)


def unit(module: str) -> str:
    """The row entry of LAYERS to which a module belongs."""
    parts = module.split(".")[1:] or ["monarch"]
    return ".".join(parts[:2]) if parts[0] == "peers" else parts[0]


def layer(module: str) -> int:
    """The number of a module's layer; -1 if the table lacks it."""
    for number, row in enumerate(LAYERS):
        if unit(module) in row:
            return number
    return -1


@pytest.fixture(scope="module")
def modules() -> dict[str, Path]:
    return {module_name(path): path for path in files("*.py", under="monarch")}


def test_each_module_is_in_the_layer_table(modules: dict[str, Path]) -> None:
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


def test_no_c_files_include_each_other_in_a_circle() -> None:
    graph = {path: included(path) for path in native_c()}

    assert not circle(graph), offences("Include cycle", circle(graph))


def test_calls_between_native_parts_go_into_shared_only() -> None:
    """Calls by function pointers and in macros are not seen."""
    wrong = [
        f"{path}: calls {name}() of {target}"
        for path, calls in called().items()
        for name, targets in calls.items()
        for target in targets
        if target.parts[2] not in (path.parts[2], "shared")
        and (path.parts[2], target.parts[2]) not in NATIVE_PARTS
    ]

    assert not wrong, offences("Native parts meet only in shared/", wrong)


def test_no_c_files_call_each_other_in_a_circle() -> None:
    """Calls by function pointers and in macros are not seen."""
    graph = {
        path: {target for targets in calls.values() for target in targets}
        for path, calls in called().items()
    }

    assert not circle(graph), offences("Call cycle", circle(graph))


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
