"""A reference page in Markdown, made from a JSON Schema: one entry for each key."""

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

COLUMNS: Final = 88

Schema = Mapping[str, Any]


def schema_page(title: str, introduction: str, schema: Schema) -> str:
    """Return the page: a section for each key at the top, with all keys below it.

    Args:
        schema: of an object; `$ref`s point into its own `$defs`.
    """
    parts = [f"# {title}", introduction.strip()]
    for key, value in schema["properties"].items():
        parts += _section(schema, key, value)
    return "\n\n".join(parts) + "\n"


def _section(schema: Schema, key: str, value: Schema) -> Iterator[str]:
    """Yield the heading, the text and the entries of one key at the top."""
    inner = _resolved(schema, value)
    yield f"## {key}"
    entries = list(_entries(schema, _path(key, inner), _element(schema, inner)))
    if entries:
        if text := _text(value) or _text(inner):
            yield _wrapped(text)
        yield "\n".join(_entry(*entry) for entry in entries)
    else:
        yield _entry(key, inner, required=False)


def _entries(
    schema: Schema, path: str, value: Schema
) -> Iterator[tuple[str, Schema, bool]]:
    """Yield (path, schema, whether it is required) of all leaves of an object."""
    for name, given in value.get("properties", {}).items():
        inner = _resolved(schema, given)
        below = f"{path}.{name}"
        element = _element(schema, inner)
        if "properties" in element:
            if text := _text(given):
                yield below, {**inner, "description": text}, False
            yield from _entries(schema, _path(below, inner), element)
        else:
            yield below, inner, name in value.get("required", ())


def _path(path: str, value: Schema) -> str:
    """Return the prefix of keys below a key; an element of a list has brackets."""
    return f"{path}[]" if value.get("type") == "array" else path


def _element(schema: Schema, value: Schema) -> Schema:
    """Return the schema of a list's elements, or the schema itself if it is no list."""
    return _resolved(schema, value.get("items", {})) if _is_list(value) else value


def _is_list(value: Schema) -> bool:
    return value.get("type") == "array"


def _resolved(schema: Schema, value: Schema) -> Schema:
    """Return the schema that a reference names; keys beside the reference win."""
    reference = value.get("$ref")
    if reference is None:
        return value
    found: Schema = schema["$defs"][reference.removeprefix("#/$defs/")]
    return {**found, **{key: own for key, own in value.items() if key != "$ref"}}


def _entry(path: str, value: Schema, required: bool) -> str:
    """Return the entry of one key: its values, its default, its meaning."""
    words = _values(value)
    facts = [words] if words not in ("", "text") else []
    if required:
        facts.append("required")
    elif "default" in value and not isinstance(value["default"], dict):
        facts.append(f"default {_literal(value['default'])}")
    shown = f" ({'; '.join(facts)})" if facts else ""
    text = f": {_text(value)}" if _text(value) else ""
    return _wrapped(f"- `{path}`{shown}{text}", indent="  ")


def _values(value: Schema) -> str:
    """Return the values of a key as words; "" if its text describes them."""
    if "enum" in value:
        return _alternatives([_literal(one) for one in value["enum"]])
    for several in ("anyOf", "oneOf"):
        if several in value:
            found = [_values(one) for one in value[several] if one.get("const") != 0]
            return _alternatives([words for words in found if words])
    if "const" in value:
        return _literal(value["const"])
    if "minimum" in value and "maximum" in value:
        may_be_null = "null" in value.get("type", "")
        words = f"{value['minimum']} to {value['maximum']}"
        return f"{words} or null" if may_be_null else words
    kind = value.get("type", "")
    if isinstance(kind, list):
        return _alternatives([_KINDS[one] for one in kind if _KINDS[one]])
    return _KINDS.get(kind, "")


_KINDS: Final = {
    "array": "list",
    "boolean": "true or false",
    "integer": "whole number",
    "null": "null",
    "number": "number",
    "object": "mapping",
    "string": "text",
}


def _alternatives(words: list[str]) -> str:
    *first, last = words or [""]
    return f"{', '.join(first)} or {last}" if first else last


def _literal(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_literal, value)) or "none"
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _text(value: Schema) -> str:
    return str(value.get("description", ""))


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()),
        COLUMNS,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
