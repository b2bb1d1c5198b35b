"""The layers of a configuration: how a value of one takes the place of another's."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from monarch.config.options import RunOptions, parse_tier
from monarch.config.schema import Config
from monarch.config.tree import (
    Fault,
    KeyPath,
    Layer,
    Node,
    Refused,
    Where,
    key_parts,
    key_path,
    key_text,
    merge,
    plant,
    put,
)
from monarch.config.yaml import DEPTH_MAX, read_value

PREFIX: Final = "MONARCH_STAGING_"

# The variables that are no configuration keys.
_OTHERS: Final = (
    "CONFIG",
    "DISABLE",
    "NODE",
    "PYTHON",
    "RUN",
    "RUN_DIR",
    "SITE_CONFIG",
)


@dataclass(frozen=True, slots=True)
class Assignment:
    """One value given outside of the files."""

    path: KeyPath
    value: Node


def default_tree() -> Node:
    """Return the tree of all defaults."""
    values = Config().model_dump(mode="json", by_alias=True)
    return plant(values, Where(Layer.DEFAULT))


def environment_assignments(environ: Mapping[str, str]) -> Iterator[Assignment]:
    """Yield the values given by `MONARCH_STAGING_SECTION__KEY` variables."""
    for name, parts in _variables(environ):
        if len(parts) > 1 or parts[0] in _sections():
            where = Where(Layer.ENVIRONMENT, name)
            yield Assignment(key_parts(parts), read_value(environ[name], where))


def environment_faults(environ: Mapping[str, str]) -> list[Fault]:
    """Return a fault for each variable with our prefix that nothing reads."""
    known = sorted({*_OTHERS, *map(str.upper, _sections())})
    faults = []
    for name, parts in _variables(environ):
        word = name.removeprefix(PREFIX)
        if len(parts) > 1 or parts[0] in _sections() or word in _OTHERS:
            continue
        near = difflib.get_close_matches(word, known, n=1)
        hint = f" (did you mean {PREFIX}{near[0]}?)" if near else ""
        what = f"found an unknown variable, allowed {PREFIX}SECTION__KEY{hint}"
        faults.append(Fault(Where(Layer.ENVIRONMENT, name), "", what))
    return faults


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each variable with our prefix and the parts of its key."""
    for name in sorted(environ):
        if name.startswith(PREFIX):
            yield name, name.removeprefix(PREFIX).lower().split("__")


def _sections() -> set[str]:
    return {field.alias or name for name, field in Config.model_fields.items()}


def option_assignments(options: RunOptions, datasets: int) -> Iterator[Assignment]:
    """Yield the values given by options.

    Args:
        datasets: how many datasets there are without the options.
    """
    if options.data:
        where = Where(Layer.OPTION, "--data")
        yield Assignment(
            ("datasets",), plant([{"path": p} for p in options.data], where)
        )
    if options.tiers:
        where = Where(Layer.OPTION, "--tier")
        yield Assignment(("tiers",), Node(_tiers(options.tiers), where))
    if options.report is not None:
        where = Where(Layer.OPTION, "--report")
        yield Assignment(("report", "file"), Node(options.report, where))
    if options.hosts is not None:
        where = Where(Layer.OPTION, "--hosts")
        yield Assignment(("hosts",), Node(options.hosts, where))
    if options.secret_file is not None:
        where = Where(Layer.OPTION, "--secret-file")
        yield Assignment(("peers", "secret_file"), Node(options.secret_file, where))
    if options.index is not None:
        where = Where(Layer.OPTION, "--index")
        if (len(options.data) or datasets) != 1:
            what = "found several datasets or none, allowed --index with exactly one"
            raise Refused([Fault(where, "", f"{what} (else set datasets[N].index)")])
        yield Assignment(("datasets", 0, "index"), Node(options.index, where))
    for setting in options.settings:
        key, equals, text = setting.partition("=")
        where = Where(Layer.OPTION, f"--set {setting}")
        if not key or not equals:
            raise Refused([Fault(where, "", "found no value, allowed KEY=VALUE")])
        yield Assignment(key_path(key.strip()), read_value(text, where))


def assign(tree: Node, assignment: Assignment) -> Node:
    """Return the tree with one more value in it."""
    if len(assignment.path) > DEPTH_MAX:
        what = f"found {len(assignment.path)} levels, allowed a key of this version"
        raise Refused([Fault(assignment.value.where, "", what)])
    try:
        return put(tree, assignment.path, assignment.value)
    except IndexError as error:
        length = error.args[0]
        what = f"found no such item, allowed an index from 0 to {length}"
        key = key_text(assignment.path)
        raise Refused([Fault(assignment.value.where, key, what)]) from None


def join(lower: Node, upper: Node) -> Node:
    """Lay a file's tree over what is below it; sections left empty change nothing."""
    assert isinstance(upper.value, dict)
    given = {key: node for key, node in upper.value.items() if node.value is not None}
    return merge(lower, Node(given, upper.where, upper.key))


def _tiers(texts: tuple[str, ...]) -> list[Node]:
    """Return the tiers of --tier options, with a number behind a kind used before."""
    tiers: list[Node] = []
    kinds: list[str] = []
    faults: list[Fault] = []
    for text in texts:
        where = Where(Layer.OPTION, f"--tier {text}")
        try:
            tier = parse_tier(text)
        except ValueError as error:
            faults.append(Fault(where, "", f"found {text!r}, allowed {error}"))
            continue
        kinds.append(tier["kind"])
        count = kinds.count(tier["kind"])
        if count > 1:
            tier["name"] = f"{tier['kind']}-{count}"
        tiers.append(plant(tier, where))
    if faults:
        raise Refused(faults)
    return tiers
