"""The rules that no value breaks alone: names and directories that meet."""

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from monarch.config.schema import POOL_NAME, Config, Dataset
from monarch.config.tree import KeyPath, key_text
from monarch.hostlist import read_hosts


def conflicts(config: Config) -> Iterator[tuple[KeyPath, str]]:
    """Yield the place of each value that is only wrong beside another, and why."""
    yield from _tier_conflicts(config)
    yield from _root_conflicts(config.datasets)
    yield from _host_conflicts(config.hosts)


def _tier_conflicts(config: Config) -> Iterator[tuple[KeyPath, str]]:
    names: dict[str, int] = {}
    paths: dict[str, int] = {}
    for number, tier in enumerate(config.tiers):
        if "path" not in tier.model_fields_set and tier.kind == "ssd":
            yield ("tiers", number), "found no path, allowed a path such as /local"
            continue
        if tier.name == POOL_NAME:
            what = f"found {tier.name!r}, allowed another name"
            yield ("tiers", number, "name"), f"{what} (peers.{POOL_NAME} has it)"
        first = names.setdefault(tier.name, number)
        if first != number:
            same = f"tiers[{first}] has it"
            yield ("tiers", number, "name"), f"found {tier.name!r} again ({same})"
        first = paths.setdefault(tier.path, number)
        if first != number:
            what = f"found {tier.path!r} again, allowed one tier in a directory"
            yield ("tiers", number, "path"), f"{what} (tiers[{first}] is in it)"


def _root_conflicts(datasets: Sequence[Dataset]) -> Iterator[tuple[KeyPath, str]]:
    """Find paths and aliases that name one directory twice, or lie in each other."""
    places: dict[str, KeyPath] = {}
    spelled: list[tuple[KeyPath, str]] = []
    for number, dataset in enumerate(datasets):
        spelled.append((("datasets", number, "path"), dataset.path))
        for index, alias in enumerate(dataset.aliases):
            spelled.append((("datasets", number, "aliases", index), alias))
    for place, path in spelled:
        if path in places:
            first = key_text(places[path])
            yield place, f"found {path!r} again (it is {first} already)"
        places.setdefault(path, place)
    for place, path in spelled:
        for outer in map(str, PurePosixPath(path).parents):
            if outer in places:
                inside = f"{outer!r}, which is {key_text(places[outer])}"
                yield place, f"found {path!r}, allowed a directory not inside {inside}"
                break


def _host_conflicts(hosts: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
    """Find hosts that are named twice: a node has one place in the list."""
    places: dict[str, int] = {}
    for number, item in enumerate(hosts):
        for node in read_hosts([item]).nodes:
            first = places.setdefault(node, number)
            if first != number:
                yield ("hosts", number), f"found {node!r} again (hosts[{first}] has it)"
