"""What the house rules need to know of a C file, read with a brace scanner."""

import re
from collections.abc import Iterator
from pathlib import Path

from support.pysource import Measure

# Comments, literals and preprocessor lines hold braces that open nothing.
NOISE = re.compile(
    r"""/\*.*?\*/ | //[^\n]* | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*'
        | ^[ \t]*\#(?:\\\n|[^\n])*""",
    re.DOTALL | re.VERBOSE | re.MULTILINE,
)
ATTRIBUTE = re.compile(r"__attribute__\s*\(\(.*?\)\)\s*", re.DOTALL)
PARAMETERS = re.compile(r"(\w+)\s*\(((?:[^()]|\([^()]*\))*)\)\s*$")
TYPE = re.compile(r"\b(?:struct|union|enum)\s+(\w+)\s*\{")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def measure(path: Path) -> list[Measure]:
    """The sizes of each function that a file defines."""
    return list(scan(path.read_text(), str(path)))


def scan(text: str, place: str) -> Iterator[Measure]:
    """The sizes of each function in a text; `place` names the text."""
    text = NOISE.sub(_blank, text)
    depth, deepest, head = 0, 0, 0
    name, arguments, first_line, public = "", 0, 0, False
    for found in re.finditer(r"[{};]", text):
        mark, at = found.group(), found.start()
        if mark == "{":
            if depth == 0:
                first_line, name, arguments = _declarator(text, head, at)
                public = "static" not in text[head:at].split()
            depth += 1
            deepest = max(deepest, depth)
        elif mark == "}":
            depth -= 1
            if depth == 0 and name:
                lines = text.count("\n", 0, at) + 2 - first_line
                here = f"{place}:{first_line}"
                yield Measure(here, name, lines, deepest - 1, arguments, public)
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
