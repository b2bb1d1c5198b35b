"""Validation: the message for each value that the schema refuses, and for conflicts."""

import difflib
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from monarch.codec import PLAIN
from monarch.config.schema import POOL_NAME, Config, Dataset
from monarch.config.tree import Fault, KeyPath, Node, describe, find, key_text
from monarch.hostlist import read_hosts
from monarch.units import SizeKind, format_size

FAULTS_MAX: Final = 100

# YAML 1.1 reads these words as booleans; our reader accepts true and false only.
_BOOLEANS: Final = {
    "true": "true",
    "yes": "true",
    "on": "true",
    "false": "false",
    "no": "false",
    "off": "false",
}


def faults_of(error: ValidationError, tree: Node) -> list[Fault]:
    """Return one fault for each error of pydantic, in the order of the keys."""
    errors = map(dict, error.errors())
    return [_fault(e, tree) for e in errors if not _is_follow_up(e, tree)][:FAULTS_MAX]


def _is_follow_up(error: Mapping[str, Any], tree: Node) -> bool:
    """Return whether a list is reported as too short because its items are invalid."""
    return error["type"] == "too_short" and bool(find(tree, error["loc"]).value)


def _fault(error: Mapping[str, Any], tree: Node) -> Fault:
    path: KeyPath = error["loc"]
    kind: str = error["type"]
    node = find(tree, path)
    if kind == "extra_forbidden":
        return _unknown_key(path, node)
    if kind == "missing":
        owner = _model_at(path[:-1]).__name__.lower()
        text = f"missing key; every {owner} needs a {path[-1]}"
        return Fault(node.where, key_text(path), text)
    if kind == "variable":
        return Fault(node.where, key_text(path), str(error["msg"]))
    allowed, nearest = _allowed(error, node)
    value = describe(error["input"])
    if kind == "too_long":
        value = f"a list of {len(error['input'])} items"
    elif kind == "too_short":
        value = "an empty list"
    text = f"{value} is not valid; use {allowed}{did_you_mean(nearest)}"
    return Fault(node.where, key_text(path), text)


def did_you_mean(nearest: str) -> str:
    """Return the end of a message that proposes a value, or an empty text."""
    return f"; did you mean {nearest!r}?" if nearest else ""


def unknown(kind: str, name: str, known: Sequence[str]) -> str:
    """Return the message for an unknown name: the nearest known one, else all."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = did_you_mean(near[0]) if near else f"; use one of {', '.join(known)}"
    return f"unknown {kind} {name!r}{hint}"


def _unknown_key(path: KeyPath, node: Node) -> Fault:
    known = sorted(_keys(_model_at(path[:-1])))
    text = unknown("key", str(path[-1]), known)
    return Fault(node.key or node.where, key_text(path), text)


def _allowed(error: Mapping[str, Any], node: Node) -> tuple[str, str]:
    """Return the allowed values, and the one that was probably intended."""
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
            return "true or false", _BOOLEANS.get(str(node.value).casefold(), "")
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


# -- conflicts between values -----------------------------------------------------


def conflicts(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """Yield each value that is valid alone but conflicts with another, and why."""
    yield from _tier_conflicts(config)
    yield from _pool_conflicts(config)
    copies, mode = config.peers.copies, config.peers.mode
    if copies is not None and mode in ("off", "replicate"):
        text = f"{copies} copies contradict peers.mode: {mode}"
        yield ("peers", "copies"), f"{text}; use mode auto or partition"
    yield from _root_conflicts(config.datasets)
    yield from _host_conflicts(config.hosts)


def _tier_conflicts(config: Config) -> Iterator[tuple[KeyPath, str]]:
    names: dict[str, int] = {}
    paths: dict[str, int] = {}
    for number, tier in enumerate(config.tiers):
        if "path" not in tier.model_fields_set and tier.kind == "ssd":
            text = "missing key 'path'; an ssd tier needs a directory such as /local"
            yield ("tiers", number), text
            continue
        if tier.name == POOL_NAME:
            text = f"{tier.name!r} is reserved for peers.{POOL_NAME}; use another name"
            yield ("tiers", number, "name"), text
        if tier.codec == PLAIN and tier.codecs:
            text = "files with other codecs are packed, and this tier is not"
            yield ("tiers", number, "codecs"), f"{text}; set its codec, such as none"
        if tier.codec != PLAIN and config.cold_open.mode == "through":
            text = (
                f"{tier.codec} is packed, and programs that do not wait never read it"
            )
            yield ("tiers", number, "codec"), f"{text}; use cold_open.mode: auto"
        if tier.eviction != "none" and config.peers.copies is not None:
            text = f"{tier.eviction} contradicts peers.copies: copies leave the tier"
            yield ("tiers", number, "eviction"), f"{text}; use none, or no copies"
        first = names.setdefault(tier.name, number)
        if first != number:
            text = f"duplicate name {tier.name!r} (first in tiers[{first}])"
            yield ("tiers", number, "name"), text
        first = paths.setdefault(tier.path, number)
        if first != number:
            text = f"duplicate path {tier.path!r} (first in tiers[{first}])"
            yield ("tiers", number, "path"), f"{text}; use one directory for each tier"


def _pool_conflicts(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """Find a Pool that uses up the ram Tiers, if all have a fixed size."""
    pool = config.peers.transit
    ram = [tier.capacity for tier in config.used_tiers if tier.kind == "ram"]
    if not ram or any(one.kind is not SizeKind.BYTES for one in (pool, *ram)):
        return
    room = sum(one.of(0) for one in ram)
    if pool.of(0) >= room:
        text = f"{pool} is a part of the ram tiers, which have {format_size(room)}"
        yield ("peers", POOL_NAME), f"{text}; use less, auto, or larger tiers"


def _root_conflicts(datasets: Sequence[Dataset]) -> Iterator[tuple[KeyPath, str]]:
    """Find aliases that are names of another dataset, or inside one."""
    places: dict[str, KeyPath] = {}
    spelled: list[tuple[KeyPath, str]] = []
    for number, dataset in enumerate(datasets):
        places.setdefault(dataset.path, ("datasets", number, "path"))
        for index, alias in enumerate(dataset.aliases):
            spelled.append((("datasets", number, "aliases", index), alias))
    for place, path in spelled:
        if path in places:
            yield place, f"duplicate path {path!r} (first in {key_text(places[path])})"
        places.setdefault(path, place)
    paths = [(("datasets", n, "path"), one.path) for n, one in enumerate(datasets)]
    for place, path in (*paths, *spelled):
        for outer in map(str, PurePosixPath(path).parents):
            # One of the two paths contains the other.
            if outer in places and "aliases" in (place[2], places[outer][2]):
                inside = f"is inside {outer!r} ({key_text(places[outer])})"
                yield place, f"{path!r} {inside}; datasets must not overlap"
                break


def _host_conflicts(hosts: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
    """Find duplicate hosts: the position in the list is the node's number."""
    places: dict[str, int] = {}
    for number, item in enumerate(hosts):
        for node in read_hosts([item]).nodes:
            first = places.setdefault(node, number)
            if first != number:
                text = f"duplicate host {node!r} (first in hosts[{first}])"
                yield ("hosts", number), text
