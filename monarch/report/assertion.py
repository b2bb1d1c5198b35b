"""Conditions on the figures of a report, such as `ready_share>=0.9`."""

import difflib
import operator
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from monarch.errors import UsageError
from monarch.report.figures import UNKNOWN, find, kind_of, names, written
from monarch.report.model import Report
from monarch.units import UnitError, parse_duration, parse_rate, parse_size

_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_CONDITION: Final = re.compile(r"\s*([\w.\-/]+)\s*(>=|<=|==|!=|>|<)\s*(\S.*?)\s*")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_WITH_UNIT: Final[dict[str, Callable[[str], float]]] = {
    "size": parse_size,
    "rate": parse_rate,
    "duration": parse_duration,
}
_EXAMPLE: Final = "write NAME>=VALUE, such as ready_share>=0.9 or run.seconds<2h"


class Outcome(NamedTuple):
    """Whether a condition holds, and the figure that decided.

    Attributes:
        text: one line with both.
    """

    holds: bool
    text: str


def check(report: Report, condition: str) -> Outcome:
    """Return whether a condition holds; an unknown figure never fulfils it.

    Args:
        condition: a figure's name, an operator and a value. The value is a number, with
            a unit if the figure has one: 90%, 10GiB, 200MB/s, 30s.

    Raises:
        UsageError: it is not a condition, or the report has no such figure.
    """
    match = _CONDITION.fullmatch(condition)
    if match is None:
        raise UsageError(f"--assert {condition!r}: not a condition; {_EXAMPLE}")
    name, sign, limit = match.groups()
    value, wanted = _value(report, name, condition), _limit(name, limit, condition)
    if isinstance(value, bool) != isinstance(wanted, bool) and value is not None:
        raise UsageError(f"--assert {condition!r}: {name} is {_shown(value, name)}")
    holds = value is not None and _OPERATORS[sign](value, wanted)
    verdict = "true: " if holds else "false:"
    return Outcome(holds, f"{verdict} {condition.strip()}  ({_shown(value, name)})")


def _value(report: Report, name: str, condition: str) -> Any:
    try:
        value = find(report, name)
    except LookupError:
        near = difflib.get_close_matches(name, names(report), n=1, cutoff=0.6)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(
            f"--assert {condition!r}: the report has no figure {name!r}{hint}"
        ) from None
    if value is not None and not isinstance(value, int | float):
        raise UsageError(f"--assert {condition!r}: {name} is not a figure")
    return value


def _limit(name: str, text: str, condition: str) -> float | bool:
    """Return the value to compare a figure with."""
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text):
        return float(text)
    number = text.removesuffix("%").rstrip()
    kind = kind_of(name)
    if kind == "share" and number != text and _NUMBER.fullmatch(number):
        return float(number) / 100
    if kind not in _WITH_UNIT:
        raise UsageError(f"--assert {condition!r}: {text!r} is not a number")
    try:
        return _WITH_UNIT[kind](text)
    except UnitError as error:
        raise UsageError(f"--assert {condition!r}: {error}") from error


def _shown(value: Any, name: str) -> str:
    """Return a figure as text, and as the number that was compared."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return str(value).lower()
    text, plain = written(value, kind_of(name)), f"{value:.6g}"
    return text if text.replace(",", "") == plain else f"{plain}, {text}"
