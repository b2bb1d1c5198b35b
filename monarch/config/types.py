"""The types of configuration values: how each is parsed, written and described."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, PydanticCustomError

from monarch.codec import AUTO, PLAIN, Codec
from monarch.errors import UsageError
from monarch.hostlist import HOSTS_MAX, read_hosts, split_hosts
from monarch.units import (
    Size,
    SizeKind,
    UnitError,
    exact_duration,
    exact_size,
    parse_duration,
    parse_rate,
    parse_size,
)

PATH_BYTES_MAX: Final = 1024
TIER_PATH_BYTES_MAX: Final = 128
PROGRAM_NAME_BYTES_MAX: Final = 31
PATTERN_BYTES_MAX: Final = 1024

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}$]*))?\}")
"""${NAME}, or ${NAME:-TEXT} with the text that is used if NAME is unset or empty."""
REPORT_PLACES: Final = "jntp"


@dataclass(frozen=True, slots=True)
class Environment:
    """The variables and the directory with which paths are expanded."""

    environ: Mapping[str, str]
    cwd: Path


def refusal(allowed: str, nearest: str = "") -> PydanticCustomError:
    """Return the error of an invalid value, with the allowed and the nearest value."""
    facts = {"allowed": allowed, "nearest": nearest}
    return PydanticCustomError("refused", "use {allowed}", facts)


def _quantity(read: Callable[[str], Any], allowed: str) -> Callable[[object], Any]:
    """Return a validator that parses a text with a unit; a plain 0 needs none."""

    def validate(value: object) -> Any:
        if value == 0 and type(value) is int:
            value = "0"
        if type(value) is int or type(value) is float:
            value = str(value)
        if not isinstance(value, str):
            raise refusal(allowed)
        try:
            return read(value)
        except UnitError as error:
            raise refusal(allowed, error.nearest) from None

    return validate


def _sized(allowed: str, *kinds: SizeKind) -> Callable[[object], Any]:
    """Return a validator for sizes of some kinds; a capacity must not be 0."""

    def read(text: str) -> Size:
        size = Size.parse(text)
        if size.kind not in kinds:
            raise UnitError(text, allowed)
        if size == Size(SizeKind.BYTES, 0) and SizeKind.AUTO in kinds:
            raise UnitError(text, allowed)
        return size

    return _quantity(read, allowed)


def _read_pool(text: str) -> Size:
    if text.strip() == "auto":
        return Size(SizeKind.AUTO)
    return Size(SizeKind.BYTES, parse_size(text))


def _read_bandwidth(text: str) -> Size:
    if text.strip() == "unlimited":
        return Size(SizeKind.UNLIMITED)
    rate = parse_rate(text)
    if rate == 0:
        raise UnitError(text, "a rate above 0")
    return Size(SizeKind.BYTES, rate)


def _write_bandwidth(rate: Size) -> str:
    return f"{rate}/s" if rate.kind is SizeKind.BYTES else str(rate)


CONCURRENCY_MAX: Final = 64
READERS_MAX: Final = 1 << 16


def _concurrency(value: object) -> int | str:
    if value == "auto" and isinstance(value, str):
        return value
    if type(value) is int and 1 <= value <= CONCURRENCY_MAX:
        return value
    raise refusal(f"auto, or a whole number from 1 to {CONCURRENCY_MAX}")


def _read_retain(text: str) -> str | float:
    if text in ("job", "node"):
        return text
    seconds = parse_duration(text)
    if not seconds:
        raise UnitError(text, "a duration above 0", "job")
    return seconds


def _write_retain(retain: str | float) -> str:
    return retain if isinstance(retain, str) else exact_duration(retain)


def _text_schema(example: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "examples": [example]})


def _quantity_schema(example: str) -> WithJsonSchema:
    forms = [{"type": "string", "examples": [example]}, {"const": 0}]
    return WithJsonSchema({"anyOf": forms})


@dataclass(frozen=True, slots=True)
class DurationRange:
    """Annotates a float as a duration in seconds, written as text, with bounds."""

    shortest: str
    longest: str

    def __get_pydantic_core_schema__(
        self, _source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the schema that parses and writes such a duration."""
        allowed = f"a duration from {self.shortest} to {self.longest}, such as 30s"
        low, high = parse_duration(self.shortest), parse_duration(self.longest)

        def read(text: str) -> float:
            seconds = parse_duration(text)
            if not low <= seconds <= high:
                raise UnitError(text, allowed)
            return seconds

        form = Annotated[
            float,
            PlainValidator(_quantity(read, allowed)),
            PlainSerializer(exact_duration, return_type=str),
            _quantity_schema("30s"),
        ]
        return handler.generate_schema(form)


Bytes = Annotated[
    int,
    PlainValidator(_quantity(parse_size, "a size such as 8GiB or 80GB")),
    PlainSerializer(exact_size, return_type=str),
    _quantity_schema("8MiB"),
]
Capacity = Annotated[
    Size,
    PlainValidator(
        _sized(
            "auto, a size such as 8GiB, a share such as 40%, or all-but 10GiB",
            SizeKind.AUTO,
            SizeKind.BYTES,
            SizeKind.PERCENT,
            SizeKind.ALL_BUT,
        )
    ),
    PlainSerializer(str, return_type=str),
    _text_schema("8GiB"),
]
Pool = Annotated[
    Size,
    PlainValidator(_quantity(_read_pool, "auto, or a size such as 256MiB")),
    PlainSerializer(str, return_type=str),
    _quantity_schema("256MiB"),
]
Headroom = Annotated[
    Size,
    PlainValidator(
        _sized(
            "0, a size such as 8GiB, or a share such as 5%",
            SizeKind.BYTES,
            SizeKind.PERCENT,
        )
    ),
    PlainSerializer(str, return_type=str),
    _quantity_schema("5%"),
]
Bandwidth = Annotated[
    Size,
    PlainValidator(_quantity(_read_bandwidth, "unlimited, or a rate such as 200MB/s")),
    PlainSerializer(_write_bandwidth, return_type=str),
    _text_schema("200MB/s"),
]
Retain = Annotated[
    Literal["job", "node"] | float,
    PlainValidator(_quantity(_read_retain, "job, node, or a duration such as 7d")),
    PlainSerializer(_write_retain, return_type=str),
    _text_schema("7d"),
]


Concurrency = Annotated[
    int | Literal["auto"],
    PlainValidator(_concurrency),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": "auto"},
                {"type": "integer", "minimum": 1, "maximum": CONCURRENCY_MAX},
            ]
        }
    ),
]


def _readers(value: object) -> int | str:
    if value == "unlimited" and isinstance(value, str):
        return value
    if type(value) is int and 1 <= value <= READERS_MAX:
        return value
    raise refusal(f"unlimited, or a whole number from 1 to {READERS_MAX}")


Readers = Annotated[
    int | Literal["unlimited"],
    PlainValidator(_readers),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": "unlimited"},
                {"type": "integer", "minimum": 1, "maximum": READERS_MAX},
            ]
        }
    ),
]


def _expand(text: str, environ: Mapping[str, str]) -> str:
    def value_of(match: re.Match[str]) -> str:
        value = environ.get(match[1], "") or match[2] or ""
        if not value:
            state = "empty" if match[1] in environ else "not set"
            raise PydanticCustomError(
                "variable",
                "the variable {name} is {state}",
                {"name": match[1], "state": state},
            )
        return value

    return _VARIABLE.sub(value_of, text)


def _expanded(value: object, info: ValidationInfo) -> str:
    """Return the path with its variables expanded."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise refusal("a path as text")
    if value == "~" or value.startswith("~/"):
        raise refusal("${HOME} instead of ~", "${HOME}" + value[1:])
    if isinstance(info.context, Environment):
        value = _expand(value, info.context.environ)
    return value


def _absolute(path: str, bytes_max: int) -> str:
    """Return an absolute path without `.`, `..` and redundant slashes."""
    if not path.startswith("/"):
        raise refusal("an absolute path")
    path = os.path.normpath(path)
    if _surrogates(path):
        raise refusal("a path in UTF-8")
    path = f"/{path.lstrip('/')}"  # only POSIX treats // specially
    if len(path.encode()) > bytes_max:
        raise refusal(f"a path of at most {bytes_max} bytes")
    return path


def _path(value: object, info: ValidationInfo) -> str:
    path = _expanded(value, info)
    if isinstance(info.context, Environment):
        path = os.path.join(info.context.cwd, path)
    return _absolute(path, PATH_BYTES_MAX)


def _report_path(value: object, info: ValidationInfo) -> str:
    path = _path(value, info)
    if re.search(f"%(?![{REPORT_PLACES}%])", path):
        raise refusal("only %j (job), %n (node), %t (time), %p (process) and %%")
    return path


def _surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _dataset_path(value: object, info: ValidationInfo) -> str:
    if isinstance(value, str) and value.startswith("@"):  # a file of paths
        return "@" + _path(value[1:], info)
    path = _path(value, info)
    if path == "/":
        raise refusal("a directory below /")
    return path


def _tier_path(value: object, info: ValidationInfo) -> str:
    return _absolute(_expanded(value, info), TIER_PATH_BYTES_MAX)


def _matched(pattern: str, allowed: str, bytes_max: int) -> PlainValidator:
    whole = re.compile(pattern)

    def validate(value: object) -> str:
        if not isinstance(value, str) or not whole.fullmatch(value):
            raise refusal(allowed)
        if len(value.encode("utf-8", "surrogatepass")) > bytes_max:
            raise refusal(f"{allowed}, of at most {bytes_max} bytes")
        return value

    return PlainValidator(validate)


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


_HOST_ALLOWED: Final = "NAME, NAME:PORT or a list such as n[0-3,7]"


def _host(value: object) -> str:
    if not isinstance(value, str):
        raise refusal(_HOST_ALLOWED)
    try:
        read_hosts([value])
    except UsageError:
        raise refusal(_HOST_ALLOWED) from None
    return value


def _as_hosts(value: object) -> object:
    """Return the items of a list; options and variables contain it as one text."""
    if not isinstance(value, str):
        return _as_tuple(value)
    try:
        items = split_hosts(value)
    except UsageError:
        raise refusal(_HOST_ALLOWED) from None
    if not items:
        raise refusal(_HOST_ALLOWED)
    return tuple(items)


AnyPath = Annotated[str, PlainValidator(_path), _text_schema("/scratch/report.json")]
ReportPath = Annotated[
    str, PlainValidator(_report_path), _text_schema("/scratch/report-%j.json")
]
DatasetPath = Annotated[
    str, PlainValidator(_dataset_path), _text_schema("/pfs/imagenet")
]
TierPath = Annotated[str, PlainValidator(_tier_path), _text_schema("/dev/shm")]
TierName = Annotated[
    str,
    _matched("[a-z0-9-]+", "a name of lower-case letters, digits and dashes", 32),
    WithJsonSchema({"type": "string", "pattern": "^[a-z0-9-]+$", "maxLength": 32}),
]


def _read_codec(value: object) -> str:
    """Return the codec of a Tier by its canonical name."""
    if value in (PLAIN, AUTO):
        return str(value)
    try:
        return str(Codec.parse(str(value)))
    except ValueError as error:
        raise refusal(f"{PLAIN}, {AUTO}, {error}") from None


TierCodec = Annotated[
    str,
    BeforeValidator(_read_codec),
    WithJsonSchema({"type": "string", "examples": [PLAIN, AUTO, "zstd:3", "lz4"]}),
]


def _read_file_codec(value: object) -> str:
    """Return the codec of some files by its canonical name."""
    try:
        return str(Codec.parse(str(value)))
    except ValueError as error:
        raise refusal(str(error)) from None


FileCodec = Annotated[
    str,
    BeforeValidator(_read_file_codec),
    WithJsonSchema({"type": "string", "examples": ["none", "zstd:3", "lz4"]}),
]
Pattern = Annotated[
    str,
    _matched(
        r"(?![/])[^\0]+",
        "a pattern such as **/*.jpg, relative to path",
        PATTERN_BYTES_MAX,
    ),
    _text_schema("**/*.jpg"),
]
ProgramName = Annotated[
    str,
    _matched(
        r"[^/\0]+", "the name of a program without its path", PROGRAM_NAME_BYTES_MAX
    ),
    _text_schema("rsync"),
]
Interface = Annotated[
    str,
    _matched(
        r"[A-Za-z0-9._:@%-]+", "an interface such as ib0, or one of its addresses", 63
    ),
    _text_schema("ib0"),
]
Several = BeforeValidator(_as_tuple)
Hosts = Annotated[
    tuple[Annotated[str, PlainValidator(_host), _text_schema("n[0-3]")], ...],
    BeforeValidator(_as_hosts),
    Field(max_length=HOSTS_MAX),
]
Patterns = Annotated[tuple[Pattern, ...], Several, Field(max_length=256)]
