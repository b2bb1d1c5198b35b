"""The source files of the project, and what the C files use of each other."""

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from support import csource

ROOT = Path(__file__).parents[2]


def files(*patterns: str, under: str = ".") -> list[Path]:
    """The source files below a directory of the project, relative to its root."""
    hidden = {".venv", "build", "dist", "__pycache__", ".git"}
    found = [path for pattern in patterns for path in (ROOT / under).rglob(pattern)]
    relative = [path.relative_to(ROOT) for path in found]
    return sorted(path for path in relative if not hidden & set(path.parts))


def native_c(*patterns: str) -> list[Path]:
    """The C files and headers of monarch/native, or the files of other patterns."""
    return files(*patterns or ("*.c", "*.h"), under="monarch/native")


def included_home(path: Path, name: str) -> str:
    """The part of monarch/native in which a file finds what it includes."""
    for home in (path.parent, Path("monarch/native")):
        if (home / name).exists():
            target = (home / name).resolve().relative_to(ROOT)
            return target.parts[2]
    return "nowhere"


def included(path: Path) -> set[Path]:
    """The files of monarch/native that a C file includes."""
    homes = (path.parent, Path("monarch/native"))
    return {home / name for name in csource.includes(path) for home in homes} & {
        *native_c("*.c", "*.h", "*.def")
    }


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


def module_name(path: Path) -> str:
    """The dotted name of a Python file of the package."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def circle(graph: dict[Path, set[Path]]) -> list[str]:
    """The files of one cycle of a graph, in order, or none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        return [str(path) for path in cycle.args[1]]
    return []


def circles(graph: dict[Path, set[Path]]) -> list[set[Path]]:
    """All sets of nodes that reach each other, the largest first."""
    reached = {node: _reached(graph, node) for node in graph}
    found = {
        frozenset(there for there in reached[node] if node in reached[there])
        for node in graph
    }
    whole = [set(one) for one in found if one]
    return sorted(whole, key=lambda one: (-len(one), sorted(one)))


def _reached(graph: dict[Path, set[Path]], start: Path) -> set[Path]:
    """The nodes to which arrows lead from one, itself if it is in a circle."""
    found: set[Path] = set()
    ahead = list(graph[start])
    while ahead:
        node = ahead.pop()
        if node not in found:
            found.add(node)
            ahead += graph[node]
    return found


def offences(rule: str, found: list[str]) -> str:
    """The message of a broken rule."""
    return "\n  ".join([f"{rule}:", *found])
