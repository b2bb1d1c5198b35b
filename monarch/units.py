"""Sizes, rates and durations: parsing and formatting."""

import re
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Final, Self

SIZE_MAX: Final = 2**63 - 1
DURATION_MAX_S: Final = 10 * 365 * 86400.0

_BINARY: Final = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}
_DECIMAL: Final = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
_BYTES: Final = {"B": 1, "KB": 10**3, **_DECIMAL, **_BINARY}
_SECONDS: Final = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_NUMBER_AND_UNIT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", re.ASCII)

_SIZE_ALLOWED: Final = "a size such as 8GiB or 80GB"
_RATE_ALLOWED: Final = "a rate such as 200MB/s"
_DURATION_ALLOWED: Final = "a duration such as 500ms, 30s, 10min, 2h or 7d"


class UnitError(ValueError):
    """A text is not a valid quantity.

    Args:
        text: the text.
        allowed: which quantities are valid.
        nearest: the quantity that was probably intended, or "".
    """

    def __init__(self, text: str, allowed: str, nearest: str = "") -> None:
        hint = f"; did you mean {nearest!r}?" if nearest else ""
        super().__init__(f"{text!r} is not valid; use {allowed}{hint}")
        self.allowed = allowed
        self.nearest = nearest


class SizeKind(Enum):
    """How a Size expresses its number of bytes."""

    AUTO = "auto"
    BYTES = "bytes"
    PERCENT = "percent"
    ALL_BUT = "all-but"
    UNLIMITED = "unlimited"


@dataclass(frozen=True, slots=True)
class Size:
    """A number of bytes, absolute or relative to a total.

    Args:
        amount: bytes for BYTES and ALL_BUT, percent for PERCENT, else 0.
    """

    kind: SizeKind
    amount: int | float = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `8GiB`, `40%`, `all-but 10GiB`, `auto` or `unlimited`."""
        words = text.split()
        if words in (["auto"], ["unlimited"]):
            return cls(SizeKind(words[0]))
        if words and words[0] == "all-but":
            return cls(SizeKind.ALL_BUT, parse_size(" ".join(words[1:])))
        if text.rstrip().endswith("%"):
            return cls(SizeKind.PERCENT, _parse_percent(text))
        return cls(SizeKind.BYTES, parse_size(text))

    def of(self, total: int) -> int:
        """Return this Size in bytes, of a total of `total`."""
        match self.kind:
            case SizeKind.BYTES:
                return int(self.amount)
            case SizeKind.PERCENT:
                return int(Decimal(str(self.amount)) * total / 100)
            case SizeKind.ALL_BUT:
                return max(0, total - int(self.amount))
            case SizeKind.UNLIMITED:
                return total
            case SizeKind.AUTO:
                raise ValueError("the caller decides an automatic size")

    def __str__(self) -> str:
        """Return a text that `parse` reads as this Size."""
        match self.kind:
            case SizeKind.BYTES:
                return exact_size(int(self.amount))
            case SizeKind.PERCENT:
                return f"{_plain(Decimal(str(self.amount)))}%"
            case SizeKind.ALL_BUT:
                return f"all-but {exact_size(int(self.amount))}"
            case SizeKind.AUTO | SizeKind.UNLIMITED:
                return str(self.kind.value)


def parse_size(text: str) -> int:
    """Return the bytes of a text such as `8GiB`, `80GB`, `1.5TiB` or `0`."""
    number, unit = _split(text, _SIZE_ALLOWED)
    if not unit and number == 0:
        return 0
    if unit not in _BYTES:
        raise UnitError(text, _SIZE_ALLOWED, _nearest_size(text, unit))
    size = int(number * _BYTES[unit])
    if size > SIZE_MAX:
        raise UnitError(text, "a size below 8192PiB")
    return size


def parse_rate(text: str) -> int:
    """Return the bytes per second of a text such as `200MB/s`."""
    amount, slash, second = text.partition("/")
    if not slash or second.strip() != "s":
        raise UnitError(text, _RATE_ALLOWED)
    try:
        return parse_size(amount)
    except UnitError as error:
        nearest = f"{error.nearest}/s" if error.nearest else ""
        raise UnitError(text, _RATE_ALLOWED, nearest) from None


def parse_duration(text: str) -> float:
    """Return the seconds of a text such as `500ms`, `30s`, `10min`, `7d` or `0`."""
    number, unit = _split(text, _DURATION_ALLOWED)
    if not unit and number == 0:
        return 0.0
    if unit not in _SECONDS:
        spelled = {"m": "min", "sec": "s", "hour": "h", "hours": "h", "day": "d"}
        spelled |= {"days": "d", "": "s", "minutes": "min", "seconds": "s"}
        known = spelled.get(unit.casefold(), "")
        nearest = f"{_plain(number)}{known}" if known else ""
        raise UnitError(text, _DURATION_ALLOWED, nearest)
    seconds = float(number * _SECONDS[unit])
    if seconds > DURATION_MAX_S:
        raise UnitError(text, "a duration of at most 3650d")
    return seconds


def exact_size(size: int) -> str:
    """Return the shortest text that `parse_size` reads as exactly `size`."""
    if size == 0:
        return "0B"
    texts = [
        f"{size // factor}{unit}"
        for unit, factor in {**_BINARY, **_DECIMAL, "B": 1}.items()
        if size % factor == 0
    ]
    return min(texts, key=len)


def exact_duration(seconds: float) -> str:
    """Return a text that `parse_duration` reads as exactly `seconds`."""
    if not seconds:
        return "0s"
    if seconds == int(seconds):
        whole = int(seconds)
        for unit, factor in (("d", 86400), ("h", 3600), ("min", 60)):
            if whole % factor == 0:
                return f"{whole // factor}{unit}"
        return f"{whole}s"
    milliseconds = round(seconds * 1000)
    if seconds < 1 and float(Decimal(milliseconds) / 1000) == seconds:
        return f"{milliseconds}ms"
    return f"{_plain(Decimal(repr(seconds)))}s"


def format_size(size: float) -> str:
    """Return a rounded size: `512 B`, `1.5 KiB`, `64.0 GiB`."""
    if size < 1024:
        return f"{size:.0f} B"
    value, last = float(size), "KiB"
    for unit in _BINARY:
        value, last = value / 1024, unit
        if round(value, 1) < 1024:
            break
    return f"{value:.1f} {last}"


def format_rate(bytes_per_s: float) -> str:
    """Return a rounded rate: `1.2 GiB/s`."""
    return f"{format_size(bytes_per_s)}/s"


def format_duration(seconds: float) -> str:
    """Return a rounded duration: `85 µs`, `350 ms`, `12.3 s`, `4 min 05 s`."""
    if seconds == 0:
        return "0 s"
    if seconds < 0.0009995:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours:02d} h"


def format_count(count: int) -> str:
    """Return a count with separators: `1,204`."""
    return f"{count:,}"


def _split(text: str, allowed: str) -> tuple[Decimal, str]:
    """Return the number and the unit of `text`."""
    match = _NUMBER_AND_UNIT.fullmatch(text.strip())
    if match is None:
        raise UnitError(text, allowed)
    return Decimal(match[1]), match[2]


def _parse_percent(text: str) -> float:
    """Return the percent of `40%`."""
    number, unit = _split(text.rstrip().removesuffix("%"), "a percentage such as 40%")
    if unit or not 0 < number <= 100:
        raise UnitError(text, "a percentage above 0% and up to 100%")
    return float(number)


def _nearest_size(text: str, unit: str) -> str:
    """Return `text` with the unit that was probably intended, or nothing."""
    number = text.strip().removesuffix(unit).strip()
    if not unit:
        return f"{number}B" if len(number) > 3 else f"{number}GiB"
    for spelling in (unit, f"{unit}iB", f"{unit}B"):
        for known in _BYTES:
            if known.casefold() == spelling.casefold():
                return f"{number}{known}"
    return ""


def _plain(number: Decimal) -> str:
    """Return `number` without an exponent and trailing zeros."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
