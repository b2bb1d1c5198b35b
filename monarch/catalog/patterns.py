"""Patterns of names, compiled to regular expressions for root-relative byte paths.

The rules, which `monarch help configuration` repeats:

- A pattern without a slash matches the last component of a path, at any depth:
  ``*.jpg``. A pattern with a slash matches the whole root-relative path:
  ``train/*.jpg``. A leading slash anchors the pattern at the root.
- ``*`` matches any characters except a slash, ``?`` one character, ``[a-z]`` and
  ``[!a-z]`` one of a set of ASCII characters, ``**`` any number of components,
  or none.
- A directory that ``exclude`` or ``never`` matches is excluded with its contents.
- ``include`` selects files and links; a directory is listed if a pattern can match
  below it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from monarch.errors import UsageError

Links = Literal["follow", "inside"]

_CHARACTER = rb"(?:[^/\x80-\xff]|[\xc0-\xff][\x80-\xbf]*|[\x80-\xbf])"
_NOTHING = rb"(?!)"
_TOKEN = re.compile(rb"\*+|\?|\[!?\]?[^]/]*\]|.", re.DOTALL)
_MEMBER = re.compile(rb".-.|.", re.DOTALL)


MAPPED_FORMATS: Final = (
    *("*.mdb", "*.lmdb"),
    "*.safetensors",
    *("*.arrow", "*.feather", "*.ipc"),
    "*.npy",
)
"""Names of files that their usual readers map: LMDB, safetensors, Arrow IPC, NumPy."""


@dataclass(frozen=True, slots=True)
class Patterns:
    """Which names below a dataset root are catalogued.

    Attributes:
        include: a name must match one of these,
        exclude: none of these,
        never: and none of these, which match files that must not be staged.
        links: whether links that leave the root are followed.
        names: only these paths, and all below those of directories; empty: no limit.
        parts: directories below the root with patterns of their own.
    """

    include: tuple[str, ...] = ("**",)
    exclude: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    links: Links = "follow"
    names: tuple[str, ...] = ()
    parts: tuple[tuple[str, Patterns], ...] = ()

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Patterns:
        """Return the patterns from the result of asdict(), also after JSON."""
        given = dict(described)
        parts = tuple((path, cls.of(part)) for path, part in given.pop("parts"))
        links = given.pop("links")
        lists = {name: tuple(value) for name, value in given.items()}
        return cls(**lists, links=links, parts=parts)


class Selection:
    """Decides which names below a root are catalogued.

    Attributes:
        follows: links that leave the root are followed.
        by_path: the same name may be catalogued in one directory and not in another.
    """

    def __init__(self, patterns: Patterns) -> None:
        include = [_parse(pattern) for pattern in patterns.include]
        drop = [_parse(p) for p in (*patterns.exclude, *patterns.never)]
        self._drop = _either(map(_below, drop)) if drop else None
        everything = any(glob.parts == (b"**",) for glob in include)
        self._keep = None if everything else _either(map(_whole, include))
        anywhere = any(glob.anywhere for glob in include)
        self._descend = None if anywhere else _either(map(_leading, include))
        self._marks = tuple(map(_literal, drop)) if everything else (b"",)
        self.follows = patterns.links == "follow"
        self.by_path = not everything or any(not glob.anywhere for glob in drop)

    def only(self, _directory: bytes) -> list[bytes] | None:
        """Return the names to look up in a directory; None: all names in it."""
        return None

    def takes_all(self, names: Sequence[bytes]) -> bool:
        """Return whether all names of one directory are surely catalogued.

        A name that matches a pattern contains the literal text of its last component.
        """
        text = b"\0".join(names)
        return not any(mark in text for mark in self._marks)

    def drops(self, path: bytes) -> bool:
        """Return whether ``exclude`` or ``never`` matches a path or a parent of it."""
        return self._drop is not None and self._drop.fullmatch(path) is not None

    def includes(self, path: bytes) -> bool:
        """Return whether ``include`` matches the path of a file or link."""
        return self._keep is None or self._keep.fullmatch(path) is not None

    def descends(self, path: bytes) -> bool:
        """Return whether ``include`` can match anything below a directory."""
        return self._descend is None or self._descend.fullmatch(path) is not None


@dataclass(frozen=True, slots=True)
class _Glob:
    parts: tuple[bytes, ...]
    anywhere: bool  # one component, matched at any depth


def _parse(pattern: str) -> _Glob:
    raw = os.fsencode(pattern)
    parts = tuple(part for part in raw.split(b"/") if part not in (b"", b"."))
    glob = _Glob(parts, len(parts) == 1 and not raw.startswith((b"/", b"./")))
    try:
        if parts and b".." not in parts and b"\0" not in raw:
            re.compile(_whole(glob))
            return glob
    except re.error:
        pass
    raise UsageError(
        f"pattern {pattern!r} is not valid; use a name such as '*.jpg' or a path in "
        "the dataset such as 'train/**'"
    )


def _either(expressions: Iterable[bytes]) -> re.Pattern[bytes]:
    return re.compile(b"|".join(expressions) or _NOTHING, re.DOTALL)


def _whole(glob: _Glob) -> bytes:
    *parents, last = glob.parts
    expression = rb".+" if last == b"**" else _component(last)
    if glob.anywhere:
        return rb"(?:.*/)?" + expression
    for part in reversed(parents):
        before = rb"(?:.*/)?" if part == b"**" else _component(part) + b"/"
        expression = before + expression
    return expression


def _literal(glob: _Glob) -> bytes:
    """Return the longest text that each match of the last component contains."""
    texts = [b""]
    for token in _TOKEN.findall(glob.parts[-1]):
        single = len(token) == 1 and token not in (b"*", b"?")
        texts[-1:] = [texts[-1] + token] if single else [texts[-1], b""]
    return max(texts, key=len)


def _below(glob: _Glob) -> bytes:
    return b"(?:" + _whole(glob) + rb")(?:/.*)?"


def _leading(glob: _Glob) -> bytes:
    """Return the expression of directories below which the pattern can match."""
    expression = b""
    ends = glob.parts[-1] == b"**"
    for part in reversed(glob.parts if ends else glob.parts[:-1]):
        deeper = b"(?:/" + expression + b")?" if expression else b""
        expression = rb".+" if part == b"**" else _component(part) + deeper
    return expression or _NOTHING


def _component(part: bytes) -> bytes:
    """Translate one path component; an unclosed set is literal."""
    return b"".join(map(_translate, _TOKEN.findall(part)))


def _member(text: bytes) -> bytes:
    """Translate a range or a character of a set: only a range has a bare hyphen."""
    return b"-".join(re.escape(end) for end in (text[:1], text[2:]) if end)


def _translate(token: bytes) -> bytes:
    if token[:1] == b"*":
        return rb"[^/]*"
    if token == b"?":
        return _CHARACTER
    if token[:1] == b"[" and len(token) > 2:
        negated = token[1:2] == b"!"
        inside = b"".join(
            map(_member, _MEMBER.findall(token[2 if negated else 1 : -1]))
        )
        return b"[" + (b"^/" if negated else b"") + inside + b"]"
    return re.escape(token)
