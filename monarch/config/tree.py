"""Configuration values before validation, each with the place that defines it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

DEPTH_MAX: Final = 50
"""The maximum number of levels of a tree."""

_NAMES: Final = {
    dict: "a mapping",
    list: "a list",
    tuple: "a list",
    type(None): "null",
}
_INDEX: Final = re.compile(r"[0-9]{1,4}")

Scalar = str | int | float | bool | None
KeyPath = tuple[str | int, ...]
_DIGITS_MAX: Final = 100

PATTERNS: Final[Mapping[str, tuple[re.Pattern[str], Iterable[str]]]] = {
    "bool": (re.compile(r"true|false"), "tf"),
    "null": (re.compile(r"~|null|Null|NULL|"), ["~", "n", "N", ""]),
    "int": (re.compile(r"[-+]?(?:0|[1-9][0-9]*)"), "-+0123456789"),
    "float": (
        re.compile(r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)(?:[eE][-+]?[0-9]+)?"),
        "-+0123456789",
    ),
    "merge": (re.compile(r"<<"), "<"),
}
"""The patterns of values that are not text, with their possible first letters."""


class Layer(Enum):
    """The kinds of places that define values, lowest precedence first."""

    DEFAULT = "default"
    SITE = "site file"
    FILE = "file"
    ENVIRONMENT = "environment"
    OPTION = "option"


@dataclass(frozen=True, slots=True)
class Where:
    """The place that defines a value.

    Args:
        name: the file, the variable or the option.
        line: counted from 1; 0 if the place has no lines.
    """

    layer: Layer
    name: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        """Return `file:line:col`, or the name of the variable or option."""
        if self.line:
            return f"{self.name}:{self.line}:{self.column}"
        return self.name or self.layer.value

    def described(self) -> str:
        """Return the place as `config show --origin` prints it."""
        match self.layer:
            case Layer.DEFAULT:
                return "default"
            case Layer.FILE:
                return f"{self.name}:{self.line}"
            case Layer.SITE:
                return f"site file {self.name}:{self.line}"
            case Layer.ENVIRONMENT | Layer.OPTION:
                return f"{self.layer.value} {self.name}"


@dataclass(frozen=True, slots=True)
class Node:
    """One value of a configuration, with all values below it.

    Args:
        where: the place of the value.
        key: the place of its key, if it has one.
    """

    value: "Scalar | dict[str, Node] | list[Node]"
    where: Where
    key: Where | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """One reason to refuse a configuration."""

    where: Where
    key: str
    text: str

    def __str__(self) -> str:
        """Return the message as one printable line."""
        parts = (str(self.where), self.key, self.text)
        line = ": ".join(part for part in parts if part)
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)


class Refused(Exception):
    """A source of configuration values has faults.

    Args:
        rest: the values that are readable in spite of the faults, if any.
    """

    def __init__(self, faults: Iterable[Fault], rest: Node | None = None) -> None:
        self.faults = tuple(faults)
        self.rest = rest
        super().__init__("; ".join(map(str, self.faults)))


def tree_of(value: object, where: Where) -> Node:
    """Return the tree of values that are all defined in one place."""
    if isinstance(value, dict):
        return Node({key: tree_of(item, where) for key, item in value.items()}, where)
    if isinstance(value, list | tuple):
        return Node([tree_of(item, where) for item in value], where)
    assert value is None or isinstance(value, str | int | float | bool)
    return Node(value, where)


def plain(node: Node) -> object:
    """Return the values of a tree without their places."""
    if isinstance(node.value, dict):
        return {key: plain(item) for key, item in node.value.items()}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    return node.value


def merge(lower: Node, upper: Node) -> Node:
    """Merge two trees: mappings are merged by key; other values of `upper` win."""
    if not (isinstance(lower.value, dict) and isinstance(upper.value, dict)):
        return upper
    joined = dict(lower.value)
    for key, item in upper.value.items():
        joined[key] = merge(joined[key], item) if key in joined else item
    return replace(upper, value=joined)


def put(tree: Node, path: KeyPath, leaf: Node) -> Node:
    """Return the tree with `leaf` at `path`; a list may grow by one item.

    Raises IndexError with the length of the list if an index is beyond its end.
    """
    if not path:
        return leaf
    first, rest = path[0], path[1:]
    if isinstance(first, int) and isinstance(tree.value, list):
        items = list(tree.value)
        if first > len(items):
            raise IndexError(len(items))
        below = items[first] if first < len(items) else Node({}, leaf.where)
        items[first : first + 1] = [put(below, rest, leaf)]
        return replace(tree, value=items)
    if not isinstance(tree.value, dict):
        tree = Node({}, leaf.where, tree.key)
    assert isinstance(tree.value, dict)
    fields = dict(tree.value)
    below = fields.get(str(first), Node({}, leaf.where, leaf.where))
    fields[str(first)] = put(below, rest, leaf)
    return replace(tree, value=fields)


def find(tree: Node, path: Iterable[str | int]) -> Node:
    """Return the deepest node that exists along `path`."""
    for part in path:
        below: Node | None = None
        if isinstance(tree.value, dict):
            below = tree.value.get(str(part))
        elif isinstance(tree.value, list) and isinstance(part, int):
            below = tree.value[part] if part < len(tree.value) else None
        if below is None:
            break
        tree = below
    return tree


def key_path(text: str) -> KeyPath:
    """Return the path of `tiers[0].capacity`, or of `tiers.0.capacity`."""
    return key_parts(re.sub(r"\[([0-9]+)\]", r".\1", text).split("."))


def key_parts(texts: Iterable[str]) -> KeyPath:
    """Return a path whose indexes are numbers."""
    return tuple(int(t) if _INDEX.fullmatch(t) else t for t in texts)


def key_text(path: Iterable[str | int]) -> str:
    """Return `tiers[0].capacity` for its path."""
    text = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in path
    )
    return text.removeprefix(".")


def describe(value: object) -> str:
    """Return a value as messages show it."""
    if type(value) in _NAMES:
        return _NAMES[type(value)]
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}...{text[-1]}"


# -- plain values as text -----------------------------------------------------------


def read_scalar(name: str, text: str) -> Scalar:
    """Return the value of a text that matches the pattern of a name."""
    match name:
        case "bool":
            return text == "true"
        case "null":
            return None
        case "int" if len(text) < _DIGITS_MAX:
            return int(text)
        case "float":
            return float(text)
    return text


def read_plain(text: str) -> Scalar:
    """Return the value of a text that is neither a list nor a mapping."""
    for name in ("bool", "null", "int", "float"):
        if PATTERNS[name][0].fullmatch(text):
            return read_scalar(name, text)
    return text
