"""Patterns of names, compiled to regular expressions over root-relative byte paths.

The rules, which README repeats:

- A pattern without a slash is matched with the last component of a path, at any depth:
  ``*.jpg``. One with a slash is matched with the whole root-relative path:
  ``train/*.jpg``. A slash at the beginning only says "from the root".
- ``*`` is any number of characters but no slash, ``?`` one character, ``[a-z]`` and
  ``[!a-z]`` one of a set of ASCII characters, ``**`` any number of whole components
  (also none).
- A directory that ``exclude`` or ``never`` matches is left out with all that is below.
- ``include`` chooses files and links; directories are listed wherever a pattern can
  still match below them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from monarch.catalog.unmanaged import Patterns
from monarch.errors import UsageError

_CHARACTER = rb"(?:[^/\x80-\xff]|[\xc0-\xff][\x80-\xbf]*|[\x80-\xbf])"
_NOTHING = rb"(?!)"
_TOKEN = re.compile(rb"\*+|\?|\[!?\]?[^]/]*\]|.", re.DOTALL)


class Selection:
    """Decides which names below a root are catalogued."""

    def __init__(self, patterns: Patterns) -> None:
        include = [_parse(pattern) for pattern in patterns.include]
        drop = [_parse(p) for p in (*patterns.exclude, *patterns.never)]
        self._drop = _either(map(_below, drop)) if drop else None
        everything = any(glob.parts == (b"**",) for glob in include)
        self._keep = None if everything else _either(map(_whole, include))
        anywhere = any(glob.anywhere for glob in include)
        self._descend = None if anywhere else _either(map(_leading, include))

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
        f"pattern {pattern!r}: write a name such as '*.jpg' or a path below the "
        "dataset root such as 'train/**'"
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


def _below(glob: _Glob) -> bytes:
    return b"(?:" + _whole(glob) + rb")(?:/.*)?"


def _leading(glob: _Glob) -> bytes:
    """Return what a directory must match for the pattern to match below it."""
    expression = b""
    ends = glob.parts[-1] == b"**"
    for part in reversed(glob.parts if ends else glob.parts[:-1]):
        deeper = b"(?:/" + expression + b")?" if expression else b""
        expression = rb".+" if part == b"**" else _component(part) + deeper
    return expression or _NOTHING


def _component(part: bytes) -> bytes:
    """Translate one path component; a set that is not closed stands for itself."""
    return b"".join(map(_translate, _TOKEN.findall(part)))


def _translate(token: bytes) -> bytes:
    if token[:1] == b"*":
        return rb"[^/]*"
    if token == b"?":
        return _CHARACTER
    if token[:1] == b"[" and len(token) > 2:
        negated = token[1:2] == b"!"
        inside = re.escape(token[2 if negated else 1 : -1]).replace(rb"\-", b"-")
        return b"[" + (b"^/" if negated else b"") + inside + b"]"
    return re.escape(token)
