"""Strict YAML: PyYAML's parser with places, limits and without implicit types.

PyYAML has no options for these additions: an error for a duplicate key, the line
and column of every value, limits on size, depth and alias expansion, and a scalar
resolution that reads `no`, `1_000`, `0o7` and dates as text.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from monarch.config.tree import (
    DEPTH_MAX,
    PATTERNS,
    Fault,
    Layer,
    Node,
    Refused,
    Where,
    describe,
    read_scalar,
)

FILE_BYTES_MAX: Final = 256 * 1024
NODES_MAX: Final = 20_000

_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = f"{_TAG}merge"

Place = Callable[[yaml.Mark], Where]


class _Loader(yaml.SafeLoader):
    """Resolves true, false, null, decimal numbers and `<<`; all else is text."""

    yaml_implicit_resolvers = {}


for _name, (_pattern, _first) in PATTERNS.items():
    # PyYAML matches at the start only, so the pattern anchors the end.
    _whole = re.compile(rf"(?:{_pattern.pattern})\Z")
    _Loader.add_implicit_resolver(_TAG + _name, _whole, list(_first))


def read_file(path: Path, name: str, layer: Layer) -> Node:
    """Return the tree of a YAML file, which messages call `name`.

    Raises OSError if it cannot be read and Refused if it is not valid.
    """
    with path.open("rb") as file:
        raw = file.read(FILE_BYTES_MAX + 1)
    top = Where(layer, name, 1, 1)
    if len(raw) > FILE_BYTES_MAX:
        size = f"{FILE_BYTES_MAX // 1024}KiB"
        raise Refused([Fault(top, "", f"the file is larger than {size}, the limit")])
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
        where = Where(layer, name, line, column)
        byte = f"byte 0x{raw[error.start]:02x} is not valid UTF-8"
        raise Refused([Fault(where, "", byte)]) from None
    return _mapping_of(text, top)


def _mapping_of(text: str, top: Where) -> Node:
    """Return the tree of a file's text, which must be a mapping or nothing."""
    tree = read_text(text, lambda m: replace(top, line=m.line + 1, column=m.column + 1))
    if tree is None or tree.value is None:
        return Node({}, top)
    if not isinstance(tree.value, dict):
        problem = f"{describe(tree.value)} is not valid; use keys such as `schema: 1`"
        raise Refused([Fault(tree.where, "", problem)])
    return tree


def read_text(text: str, place: Place) -> Node | None:
    """Return the tree of a YAML text, None if it is empty."""
    try:
        top = yaml.compose(text, Loader=_Loader)
    except yaml.reader.ReaderError as error:
        mark = _mark_at(text, int(error.position))
        problem = f"the character {chr(_code(error.character))!r} is not allowed"
        raise Refused([Fault(place(mark), "", problem)]) from None
    except yaml.MarkedYAMLError as error:
        raise Refused([_syntax_fault(error, place)]) from None
    except RecursionError:
        raise Refused([_too_much(place(_mark_at(text, 0)))]) from None
    if top is None:
        return None
    conversion = _Conversion(place)
    tree = conversion.convert(top).node
    if conversion.faults:
        raise Refused(conversion.faults, tree)
    return tree


class _Part(NamedTuple):
    """A tree with its numbers of values and levels after alias expansion."""

    node: Node
    weight: int = 1
    depth: int = 1


class _Conversion:
    """Converts PyYAML's nodes to a tree; an aliased node is converted once."""

    def __init__(self, place: Place) -> None:
        self.faults: list[Fault] = []
        self._place = place
        self._done: dict[int, _Part] = {}
        self._fields: dict[int, dict[str, _Part]] = {}
        self._open: set[int] = set()

    def convert(self, node: yaml.Node) -> _Part:
        """Return the tree below `node`; raise Refused if it exceeds the limits."""
        known = self._done.get(id(node))
        if known is not None:
            return known
        where = self._place(node.start_mark)
        if id(node) in self._open:
            self.faults.append(Fault(where, "", "the alias refers to its own parent"))
            return _Part(Node(None, where))
        if len(self._open) >= DEPTH_MAX:
            raise Refused([_too_much(where)])
        self._open.add(id(node))
        part = self._convert_new(node, where)
        self._open.discard(id(node))
        if part.weight > NODES_MAX or part.depth > DEPTH_MAX:
            raise Refused([_too_much(where)])
        self._done[id(node)] = part
        return part

    def _convert_new(self, node: yaml.Node, where: Where) -> _Part:
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            fields = self._fields[id(node)] = self._mapping(node)
            tree = Node({key: part.node for key, part in fields.items()}, where)
            return _above(fields.values(), tree)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            items = [self.convert(item) for item in node.value]
            return _above(items, Node([part.node for part in items], where))
        if isinstance(node, yaml.ScalarNode):
            name = node.tag.removeprefix(_TAG)
            if name == "str" or (
                name in PATTERNS and PATTERNS[name][0].fullmatch(node.value)
            ):
                return _Part(Node(read_scalar(name, node.value), where))
        problem = (
            f"the tag {node.tag.replace(_TAG, '!!')!r} is not supported; remove it"
        )
        self.faults.append(Fault(where, "", problem))
        return _Part(Node(None, where))

    def _mapping(self, node: yaml.MappingNode) -> dict[str, _Part]:
        fields: dict[str, _Part] = {}
        merged: dict[str, _Part] = {}
        first_seen: dict[str, yaml.Mark] = {}
        for key_node, value_node in node.value:
            where = self._place(key_node.start_mark)
            key = key_node.value
            if key_node.tag not in (f"{_TAG}str", _MERGE):
                problem = f"the key {_shown(key)} is not text; put quotes around it"
                self.faults.append(Fault(where, "", problem))
            elif key in first_seen:
                line = first_seen[key].line + 1
                problem = f"duplicate key (first on line {line})"
                self.faults.append(Fault(where, key, problem))
            elif key_node.tag == _MERGE:
                merged = self._merged(value_node)
            else:
                part = self.convert(value_node)
                fields[key] = part._replace(node=replace(part.node, key=where))
            if isinstance(key, str):
                first_seen.setdefault(key, key_node.start_mark)
        return {**merged, **fields}

    def _merged(self, node: yaml.Node) -> dict[str, _Part]:
        """Return the fields that `<<: node` merges; the first mapping wins."""
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        fields: dict[str, _Part] = {}
        for source in sources:
            tree = self.convert(source).node
            if not isinstance(tree.value, dict):
                problem = f"{describe(tree.value)} cannot be merged; use a mapping"
                self.faults.append(Fault(tree.where, "<<", problem))
                continue
            fields = {**self._fields.get(id(source), {}), **fields}
        return fields


def _above(parts: Collection[_Part], tree: Node) -> _Part:
    """Return the part of a tree that consists of other parts."""
    weight = 1 + sum(part.weight for part in parts)
    return _Part(tree, weight, 1 + max((part.depth for part in parts), default=0))


def _syntax_fault(error: yaml.MarkedYAMLError, place: Place) -> Fault:
    mark = error.problem_mark or error.context_mark
    assert mark is not None
    problem = error.problem or error.context or "syntax error"
    if "'\\t'" in problem:
        problem += "; indent with spaces"
    elif "single document" in (error.context or ""):
        problem = "more than one document"
    elif problem.startswith(("found character '%'", "found character '@'")):
        problem += "; put quotes around the text"
    return Fault(place(mark), "", f"not valid YAML: {problem}")


def _too_much(where: Where) -> Fault:
    problem = "nesting or aliases exceed the limit of "
    return Fault(where, "", f"{problem}{DEPTH_MAX} levels or {NODES_MAX} values")


def _mark_at(text: str, position: int) -> yaml.Mark:
    line = text.count("\n", 0, position)
    column = position - (text.rfind("\n", 0, position) + 1)
    return yaml.Mark("", position, line, column, "", 0)


def _code(character: object) -> int:
    return character if isinstance(character, int) else ord(str(character))


def _shown(key: object) -> str:
    return repr(key) if isinstance(key, str) else describe(key)
