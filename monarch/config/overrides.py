"""Values from outside the files: command-line options and environment variables."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from monarch.config.run_options import RunOptions
from monarch.config.schema import Config
from monarch.config.tree import (
    DEPTH_MAX,
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
    put,
    read_plain,
    tree_of,
)

PREFIX: Final = "MONARCH_STAGING_"
_VARIABLES: Final = f"variables of keys are named {PREFIX}SECTION__KEY"

# Variables with the prefix that are not configuration keys.
_OTHERS: Final = (
    "CONFIG",
    "DISABLE",
    "NODE",
    "PYTHON",
    "RUN",
    "RUN_DIR",
    "SITE_CONFIG",
)
KINDS: Final = ("ram", "ssd")
# Values that only YAML can read: lists, mappings, and text in quotes.
_QUOTED_OR_NESTED: Final = ("[", "{", '"', "'")


def parse_tier(text: str) -> dict[str, str]:
    """Return the configuration of one tier from `KIND:CAPACITY[:PATH]`.

    Raises ValueError with the correct form.
    """
    kind, _, rest = text.partition(":")
    capacity, _, path = rest.partition(":")
    if kind not in KINDS:
        raise ValueError(
            "use KIND:CAPACITY[:PATH] with kind ram or ssd, such as ram:8GiB"
        )
    if not capacity:
        raise ValueError(f"add a capacity, such as {kind}:8GiB")
    if kind == "ssd" and not path:
        raise ValueError(f"add a directory, such as {kind}:{capacity}:/local")
    tier = {"name": kind, "kind": kind, "capacity": capacity}
    return {**tier, "path": path} if path else tier


@dataclass(frozen=True, slots=True)
class Assignment:
    """One value from outside the files."""

    path: KeyPath
    value: Node


def default_tree() -> Node:
    """Return the tree of all defaults."""
    values = Config().model_dump(mode="json", by_alias=True)
    return tree_of(values, Where(Layer.DEFAULT))


def environment_assignments(environ: Mapping[str, str]) -> Iterator[Assignment]:
    """Yield the values of `MONARCH_STAGING_SECTION__KEY` variables."""
    for name, parts in _variables(environ):
        if len(parts) > 1 or parts[0] in _sections():
            where = Where(Layer.ENVIRONMENT, name)
            yield Assignment(key_parts(parts), read_value(environ[name], where))


def environment_faults(environ: Mapping[str, str]) -> list[Fault]:
    """Return a fault for each variable with our prefix that has no meaning."""
    known = sorted({*_OTHERS, *map(str.upper, _sections())})
    faults = []
    for name, parts in _variables(environ):
        word = name.removeprefix(PREFIX)
        if len(parts) > 1 or parts[0] in _sections() or word in _OTHERS:
            continue
        near = difflib.get_close_matches(word, known, n=1)
        hint = f"did you mean {PREFIX}{near[0]}?" if near else _VARIABLES
        problem = f"unknown variable; {hint}"
        faults.append(Fault(Where(Layer.ENVIRONMENT, name), "", problem))
    return faults


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each variable with our prefix and the parts of its key."""
    for name in sorted(environ):
        if name.startswith(PREFIX):
            yield name, name.removeprefix(PREFIX).lower().split("__")


def _sections() -> set[str]:
    return {field.alias or name for name, field in Config.model_fields.items()}


def option_assignments(options: RunOptions, datasets: int) -> Iterator[Assignment]:
    """Yield the values of options.

    Args:
        datasets: the number of datasets without the options.
    """
    if options.data:
        where = Where(Layer.OPTION, "--data")
        yield Assignment(
            ("datasets",), tree_of([{"path": p} for p in options.data], where)
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
            problem = "needs exactly one dataset; otherwise set datasets[N].index"
            raise Refused([Fault(where, "", problem)])
        yield Assignment(("datasets", 0, "index"), Node(options.index, where))
    for setting in options.settings:
        key, equals, text = setting.partition("=")
        where = Where(Layer.OPTION, f"--set {setting}")
        if not key or not equals:
            raise Refused([Fault(where, "", "not of the form KEY=VALUE")])
        yield Assignment(key_path(key.strip()), read_value(text, where))


def read_value(text: str, where: Where) -> Node:
    """Return the tree of one value from outside a file: `8`, `text`, `[a, b]`."""
    if not text.startswith(_QUOTED_OR_NESTED):
        return Node(read_plain(text), where)
    # Imported for the first of them: a command line often has none.
    from monarch.config.yaml import read_text

    tree = read_text(text, lambda _: where)
    return tree if tree is not None else Node(None, where)


def assign(tree: Node, assignment: Assignment) -> Node:
    """Return the tree with one more value in it."""
    if len(assignment.path) > DEPTH_MAX:
        problem = f"unknown key (of {len(assignment.path)} levels)"
        raise Refused([Fault(assignment.value.where, "", problem)])
    try:
        return put(tree, assignment.path, assignment.value)
    except IndexError as error:
        length = error.args[0]
        problem = f"no such item; use an index from 0 to {length}"
        key = key_text(assignment.path)
        raise Refused([Fault(assignment.value.where, key, problem)]) from None


def join(lower: Node, upper: Node) -> Node:
    """Merge a file's tree into the lower layers; an empty section changes nothing."""
    assert isinstance(upper.value, dict)
    given = {key: node for key, node in upper.value.items() if node.value is not None}
    return merge(lower, Node(given, upper.where, upper.key))


def _tiers(texts: tuple[str, ...]) -> list[Node]:
    """Return the tiers of --tier options; later tiers of a kind are `ram-2` etc."""
    tiers: list[Node] = []
    kinds: list[str] = []
    faults: list[Fault] = []
    for text in texts:
        where = Where(Layer.OPTION, f"--tier {text}")
        try:
            tier = parse_tier(text)
        except ValueError as error:
            faults.append(Fault(where, "", f"{text!r} is not valid; {error}"))
            continue
        kinds.append(tier["kind"])
        count = kinds.count(tier["kind"])
        if count > 1:
            tier["name"] = f"{tier['kind']}-{count}"
        tiers.append(tree_of(tier, where))
    if faults:
        raise Refused(faults)
    return tiers
