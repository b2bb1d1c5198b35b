"""Host lists in the form of Slurm: `n[0-3,7],gpu-[01-12]x`."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

from monarch.errors import UsageError

HOSTS_MAX: Final = 65536

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")


@dataclass(frozen=True, slots=True)
class Hosts:
    """The hosts of a job in their order, and the ports of those that have one."""

    nodes: tuple[str, ...]
    ports: Mapping[int, int]


def read_hosts(items: Iterable[str]) -> Hosts:
    """Return the hosts of items such as `n1`, `n2:7001` and `n[3-5]:7001`.

    Raises:
        UsageError: an item is not of that form, or a host is a duplicate.
    """
    numbers: dict[str, int] = {}
    ports: dict[int, int] = {}
    for item in items:
        text, colon, port = item.partition(":")
        if colon and not (_is_number(port) and 0 < int(port) < 65536):
            raise _refusal(item, f"{port!r} is not a port")
        for node in expand_hosts(text) or ("",):
            if not _NAME.fullmatch(node):
                raise _refusal(item, f"{node!r} is not a host name")
            if node in numbers:
                raise _refusal(item, f"duplicate host {node!r}")
            if colon:
                ports[len(numbers)] = int(port)
            numbers[node] = len(numbers)
        if len(numbers) > HOSTS_MAX:
            raise _refusal(item, f"more than {HOSTS_MAX} hosts")
    return Hosts(tuple(numbers), ports)


def expand_hosts(text: str) -> tuple[str, ...]:
    """Return the hosts of a list, in its order and without duplicates.

    Raises:
        UsageError: the list is not valid, or has more than 65,536 hosts.
    """
    found: dict[str, None] = {}
    for item in split_hosts(text):
        for host in _expanded(item, text):
            found[host] = None
            if len(found) > HOSTS_MAX:
                raise _refusal(text, f"more than {HOSTS_MAX} hosts")
    return tuple(found)


def split_hosts(text: str) -> list[str]:
    """Split a list at commas and blanks, but not inside brackets.

    Raises:
        UsageError: the brackets do not match.
    """
    items, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if depth not in (0, 1):
            raise _refusal(text, "unbalanced brackets")
        if depth == 0 and (character == "," or character.isspace()):
            items.append("")
        else:
            items[-1] += character
    if depth:
        raise _refusal(text, "unbalanced brackets")
    return [item for item in items if item]


def _expanded(item: str, text: str) -> list[str]:
    parts: list[list[str]] = []
    count, rest = 1, item
    while rest:
        literal, bracket, rest = rest.partition("[")
        parts.append([literal])
        if bracket:
            inside, _, rest = rest.partition("]")
            parts.append(_numbers(inside, text))
            count *= len(parts[-1])
            if count > HOSTS_MAX:
                raise _refusal(text, f"more than {HOSTS_MAX} hosts")
    return ["".join(one) for one in product(*parts)]


def _numbers(inside: str, text: str) -> list[str]:
    """Return the numbers of `0-3,7`, zero-padded like the start of each range."""
    found = []
    for item in inside.split(","):
        first, dash, last = item.partition("-")
        last = last if dash else first
        if not (_is_number(first) and _is_number(last)):
            raise _refusal(text, f"{item!r} is not a number or a range")
        low, high = int(first), int(last)
        if not 0 <= high - low < HOSTS_MAX:
            raise _refusal(text, f"the range {item!r} is not valid")
        found += [f"{number:0{len(first)}d}" for number in range(low, high + 1)]
    return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 12


def _refusal(text: str, reason: str) -> UsageError:
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    return UsageError(
        f"host list {shown!r}: {reason}; use a list such as n[0-3,7],gpu-[01-12]"
    )
