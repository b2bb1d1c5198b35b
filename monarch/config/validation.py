"""The words for values that the schema refuses."""

import difflib
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from monarch.config.schema import Config
from monarch.config.tree import Fault, KeyPath, Node, find, found, key_text

FAULTS_MAX: Final = 100

_MEANT: Final = {
    "true": "true",
    "yes": "true",
    "on": "true",
    "false": "false",
    "no": "false",
    "off": "false",
}


def faults_of(error: ValidationError, tree: Node) -> list[Fault]:
    """Return a line for each thing that pydantic refuses, in the order of the keys."""
    errors = map(dict, error.errors())
    return [_fault(e, tree) for e in errors if not _follows(e, tree)][:FAULTS_MAX]


def _follows(error: Mapping[str, Any], tree: Node) -> bool:
    """Say whether a list is called too short only because its items are refused."""
    return error["type"] == "too_short" and bool(find(tree, error["loc"]).value)


def _fault(error: Mapping[str, Any], tree: Node) -> Fault:
    path: KeyPath = error["loc"]
    kind: str = error["type"]
    node = find(tree, path)
    if kind == "extra_forbidden":
        return _unknown_key(path, node)
    if kind == "missing":
        owner = _model_at(path[:-1]).__name__.lower()
        what = f"found no {path[-1]}, allowed a {owner} with a {path[-1]}"
        return Fault(node.where, key_text(path), what)
    allowed, nearest = _allowed(error, node)
    shown = found(error["input"])
    if kind == "too_long":
        shown = f"{len(error['input'])} items"
    hint = f" (did you mean {nearest}?)" if nearest else ""
    text = f"found {shown}, allowed {allowed}{hint}"
    return Fault(node.where, key_text(path), text)


def _unknown_key(path: KeyPath, node: Node) -> Fault:
    known = sorted(_keys(_model_at(path[:-1])))
    near = difflib.get_close_matches(str(path[-1]), known, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    text = f"found an unknown key, allowed {', '.join(known)}{hint}"
    return Fault(node.key or node.where, key_text(path), text)


def _allowed(error: Mapping[str, Any], node: Node) -> tuple[str, str]:
    """Return what would have been right and what was probably meant."""
    facts: dict[str, Any] = error.get("ctx", {})
    match error["type"]:
        case "refused":
            return facts["allowed"], facts["nearest"]
        case "literal_error":
            expected = str(facts["expected"]).replace("'", "")
            choices = expected.replace(" or ", ", ").split(", ")
            near = difflib.get_close_matches(str(node.value), choices, n=1)
            return expected, near[0] if near else ""
        case "bool_type":
            return "true or false", _MEANT.get(str(node.value).casefold(), "")
        case "int_type":
            return "a whole number", ""
        case "greater_than_equal":
            return f"a number of at least {facts['ge']}", ""
        case "less_than_equal":
            return f"a number of at most {facts['le']}", ""
        case "too_long":
            return f"at most {facts['max_length']} items", ""
        case "too_short":
            return f"at least {facts['min_length']} item", ""
        case "tuple_type":
            return "a list", ""
        case "model_type" | "model_attributes_type":
            return "a mapping of keys", ""
    return str(error["msg"]), ""


def _keys(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield field.alias or name


def _model_at(path: KeyPath) -> type[BaseModel]:
    """Return the model that describes the mapping at `path`."""
    model: type[BaseModel] = Config
    for part in path:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation
        if typing.get_origin(annotation) is tuple:
            annotation = typing.get_args(annotation)[0]
        assert isinstance(annotation, type)
        assert issubclass(annotation, BaseModel)
        model = annotation
    return model
