"""Facts about a Python file for the house rules, read with ast."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.With,
    ast.AsyncWith,
    ast.Try,
    ast.TryStar,
    ast.Match,
)


@dataclass(frozen=True, slots=True)
class Measure:
    """One function and the sizes that the house rules limit."""

    place: str
    name: str
    lines: int
    nesting: int
    arguments: int
    public: bool


@cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(), str(path))


def measure(path: Path) -> list[Measure]:
    """The sizes of each function of a file."""
    return [
        Measure(
            f"{path}:{node.lineno}",
            node.name,
            _lines(node),
            _nesting(node.body),
            0 if _is_command(node) else _arguments(node),
            not node.name.startswith("_"),
        )
        for node in ast.walk(parse(path))
        if isinstance(node, Function)
    ]


def _lines(node: Function) -> int:
    docstring = node.body[0] if ast.get_docstring(node, clean=False) else None
    unread = docstring.end_lineno - docstring.lineno + 1 if docstring else 0  # type: ignore[operator]
    return node.end_lineno - node.lineno + 1 - unread  # type: ignore[operator]


def _nesting(body: list[ast.stmt]) -> int:
    """The depth of blocks below a body; an elif or match case adds no depth."""
    depth = 0
    for statement in body:
        if isinstance(statement, BLOCKS):
            depth = max(depth, 1 + max(map(_nesting, _bodies(statement)), default=0))
    return depth


def _bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    yield getattr(statement, "body", [])
    yield getattr(statement, "finalbody", [])
    for part in [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
        yield part.body
    otherwise = getattr(statement, "orelse", [])
    if isinstance(statement, ast.If) and [type(s) for s in otherwise] == [ast.If]:
        yield from _bodies(otherwise[0])
    else:
        yield otherwise


def _arguments(node: Function) -> int:
    names = [a.arg for a in [*node.args.posonlyargs, *node.args.args]]
    bound = bool(names) and names[0] in ("self", "cls")
    return len(names) - bound + len(node.args.kwonlyargs)


def _is_command(node: Function) -> bool:
    """True for a click command, whose arguments are the options of a person."""
    return any("command" in ast.unparse(mark) for mark in node.decorator_list)


def imports(path: Path, modules: set[str]) -> Iterator[tuple[int, str]]:
    """Line and name of each module in `modules` that a file imports at run time."""
    for node in _run_time_nodes(parse(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            module = name if name in modules else name.rpartition(".")[0]
            if module in modules:
                yield node.lineno, module


def _run_time_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _run_time_nodes(node)


def classes(path: Path) -> Iterator[tuple[int, str]]:
    """Line and name of each class of a file."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.ClassDef):
            yield node.lineno, node.name


def undocumented(path: Path) -> Iterator[tuple[int, str]]:
    """Line and name of each public function, class and method without a docstring."""
    yield from _undocumented(parse(path).body)


def _undocumented(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    for node in body:
        if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
            continue
        marks = {ast.unparse(mark) for mark in node.decorator_list}
        if not ast.get_docstring(node) and not marks & {"override", "overload"}:
            yield node.lineno, node.name
        if isinstance(node, ast.ClassDef):
            yield from _undocumented(node.body)
