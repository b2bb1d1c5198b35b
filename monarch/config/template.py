"""The configuration as commented YAML."""

import json
import re
import textwrap
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from monarch.config.overrides import read_value
from monarch.config.schema import Config, Dataset
from monarch.config.tree import Layer, Where

COLUMNS: Final = 88

_PLAIN: Final = re.compile(r"[A-Za-z0-9/][A-Za-z0-9_/.%+-]*(?: [A-Za-z0-9]+)*")
_STANDARD: Final = yaml.resolver.Resolver()
_NOWHERE: Final = Where(Layer.DEFAULT)
_INTRODUCTION: Final = """\
# The configuration of Monarch: every key with its default. Keep the keys that you
# change and delete the others.
#
# Sizes need a unit (8GiB, 80GB), and so do durations (500ms, 30s, 10min, 2h, 7d).
# ${NAME} in a path is replaced by the environment variable NAME, ${NAME:-TEXT} by TEXT
# where NAME is not set. Relative paths start in the working directory of `monarch run`.
# `monarch config check` reports mistakes; `monarch config show --origin` prints the
# effective values with their sources.
"""


def default_text() -> str:
    """Return a configuration file with every key at its default."""
    values = Config().model_dump(mode="json", by_alias=True)
    lines = [_INTRODUCTION]
    for line in _section(Config, values, commented=True):
        lines.append(line)
        if line == "datasets: []":
            lines += _example()
    return "\n".join(lines)


def config_text(config: Config) -> str:
    """Return the values of `config` as YAML."""
    values = config.model_dump(mode="json", by_alias=True)
    return "\n".join(_section(Config, values, commented=False)) + "\n"


def value_text(value: object) -> str:
    """Return one value, or a list of them, as YAML on one line."""
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    return value if _is_plain(value) else json.dumps(value, ensure_ascii=False)


def _is_plain(text: str) -> bool:
    """Return whether our reader and a standard YAML 1.1 reader both read text."""
    if not _PLAIN.fullmatch(text) or not isinstance(
        read_value(text, _NOWHERE).value, str
    ):
        return False
    # The stubs leave this function of PyYAML untyped.
    tag = _STANDARD.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return str(tag) == "tag:yaml.org,2002:str"


def _example() -> Iterator[str]:
    dataset = Dataset(path="/pfs/imagenet").model_dump(mode="json")
    yield "# datasets:"
    for line in _items(Dataset, [dataset], commented=True):
        yield f"# {line}"


def _section(
    model: type[BaseModel], values: Mapping[str, object], *, commented: bool
) -> Iterator[str]:
    """Yield the lines of a mapping, with empty lines between top-level keys."""
    for name, field in model.model_fields.items():
        key = field.alias or name
        value = values[key]
        if commented:
            yield from _comment(field)
        if isinstance(value, dict):
            yield f"{key}:"
            below = _section(_model_of(field), value, commented=commented)
            yield from _indented(below)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield f"{key}:"
            yield from _items(_model_of(field), value, commented=commented)
        else:
            yield f"{key}: {value_text(value)}"
        if commented and model is Config:
            yield ""


def _items(
    model: type[BaseModel], items: Iterable[Mapping[str, object]], *, commented: bool
) -> Iterator[str]:
    """Yield the lines of a list of mappings."""
    for item in items:
        first = True
        for line in _section(model, item, commented=commented):
            if not first:
                yield f"    {line}"
            elif line.startswith("#"):
                yield f"  {line}"
            else:
                yield f"  - {line}"
                first = False


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _comment(field: FieldInfo) -> list[str]:
    text = field.description or (_model_of(field).__doc__ or "").splitlines()[0]
    return textwrap.wrap(text, COLUMNS - 8, initial_indent="# ", subsequent_indent="# ")


def _model_of(field: FieldInfo) -> type[BaseModel]:
    annotation = field.annotation
    if typing.get_origin(annotation) is tuple:
        annotation = typing.get_args(annotation)[0]
    assert isinstance(annotation, type)
    assert issubclass(annotation, BaseModel)
    return annotation
