"""Facts about a C file for the house rules, read with a brace scanner."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from support.pysource import Measure

# Comments, literals and preprocessor lines contain braces that open nothing.
NOISE = re.compile(
    r"""/\*.*?\*/ | //[^\n]* | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
        | ^[ \t]*\#(?:\\\n|[^\n])*""",
    re.DOTALL | re.VERBOSE | re.MULTILINE,
)
ATTRIBUTE = re.compile(r"__attribute__\s*\(\(.*?\)\)\s*", re.DOTALL)
PARAMETERS = re.compile(r"(\w+)\s*\(((?:[^()]|\([^()]*\))*)\)\s*$")
TYPE = re.compile(r"\b(?:struct|union|enum)\s+(\w+)\s*\{")
CALL = re.compile(r"(?<![\w.])(?<!->)([A-Za-z_]\w*)\s*\(")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def measure(path: Path) -> list[Measure]:
    """The sizes of each function that a file defines."""
    return list(scan(path.read_text(), str(path)))


def scan(text: str, place: str) -> Iterator[Measure]:
    """The sizes of each function in a text; `place` names the text."""
    for one in functions(text):
        lines = one.last_line + 1 - one.first_line
        here = f"{place}:{one.first_line}"
        yield Measure(here, one.name, lines, one.nesting, one.arguments, one.public)


@dataclass(frozen=True, slots=True)
class Function:
    """A function definition; `body` has no comments, literals and macros."""

    name: str
    first_line: int
    last_line: int
    nesting: int
    arguments: int
    public: bool
    body: str


def functions(text: str) -> Iterator[Function]:
    """Each function that a text defines."""
    text = NOISE.sub(_blank, text)
    depth, deepest, head, start = 0, 0, 0, 0
    name, arguments, first_line, public = "", 0, 0, False
    for found in re.finditer(r"[{};]", text):
        mark, at = found.group(), found.start()
        if mark == "{":
            if depth == 0:
                first_line, name, arguments = _declarator(text, head, at)
                public, start = "static" not in text[head:at].split(), at
            depth += 1
            deepest = max(deepest, depth)
        elif mark == "}":
            depth -= 1
            if depth == 0 and name:
                last, body = text.count("\n", 0, at) + 1, text[start:at]
                yield Function(
                    name, first_line, last, deepest - 1, arguments, public, body
                )
        if depth == 0:
            head, deepest = found.end(), 0


def _blank(noise: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", noise.group())


def _declarator(text: str, head: int, brace: int) -> tuple[int, str, int]:
    """First line, name ('' if this is no function) and argument count."""
    declaration = text[head:brace]
    start = head + len(declaration) - len(declaration.lstrip())
    found = PARAMETERS.search(ATTRIBUTE.sub("", declaration))
    line = text.count("\n", 0, start) + 1
    if not found or "=" in declaration:
        return line, "", 0
    inner = re.sub(r"\([^()]*\)", "", found.group(2)).strip()
    return line, found.group(1), 0 if inner in ("", "void") else inner.count(",") + 1


def types(path: Path) -> Iterator[tuple[int, str]]:
    """Line and tag of each struct, union and enum that a file defines."""
    text = NOISE.sub(_blank, path.read_text())
    for found in TYPE.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found.group(1)


def includes(path: Path) -> list[str]:
    """The names that a file includes in quotes."""
    return INCLUDE.findall(path.read_text())


def calls(paths: Iterable[Path]) -> dict[Path, dict[str, set[Path]]]:
    """For each C file the functions that it calls, and the files that define them.

    An inline function of a header counts as a part of each file that calls it. Where
    several directories define a name, the caller's own directory is meant.
    """
    files = {path: list(functions(path.read_text())) for path in paths}
    inline: dict[str, set[str]] = {}
    definers: dict[str, set[Path]] = {}
    for path, found in files.items():
        for one in found:
            if path.suffix == ".h":
                inline.setdefault(one.name, set()).update(CALL.findall(one.body))
            elif one.public:
                definers.setdefault(one.name, set()).add(path)
    graph: dict[Path, dict[str, set[Path]]] = {}
    for path in (path for path in files if path.suffix == ".c"):
        own = {one.name for one in files[path]}
        names = {name for one in files[path] for name in CALL.findall(one.body)}
        outside = _expanded(names - own, inline) - own
        graph[path] = {
            name: nearest(path, definers[name]) for name in outside & set(definers)
        }
    return graph


def _expanded(names: set[str], inline: dict[str, set[str]]) -> set[str]:
    """The names, with those that the inline functions among them call."""
    done: set[str] = set()
    while rest := names - done:
        done |= rest
        for name in rest:
            names = names | inline.get(name, set())
    return names


def nearest(path: Path, definers: set[Path]) -> set[Path]:
    """The definers in the directory of a file; if it has none, all."""
    return {there for there in definers if there.parent == path.parent} or definers
