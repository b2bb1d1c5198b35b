"""fsspec: `monarch:///pfs/train/x.parquet` is the file of that path, read by this node.

Libraries that open files by fsspec, such as pandas, Dask, zarr and datasets, then use
plain opens and reads, which Monarch redirects to the staged copy. It is read-only:
files that a job writes do not belong into a Tier.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import IO, Any, ClassVar, NoReturn

try:
    from fsspec.spec import AbstractFileSystem
except ImportError as error:
    raise ImportError(
        "monarch.integrations.fsspec needs fsspec, which is not installed: "
        "pip install fsspec"
    ) from error

Range = int | None


class StagedFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The files of this node, read-only: `monarch://` and an absolute path.

    Outside a job of Monarch it reads the same files in place.
    """

    protocol: ClassVar[str] = "monarch"
    root_marker = "/"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        plain = os.fspath(path).removeprefix("monarch://")
        return os.path.abspath(plain)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return name, size, type and times of a file or folder.

        Raises:
            FileNotFoundError: the path does not exist.
        """
        path = self._strip_protocol(path)
        return _described(path, os.stat(path))

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """Return the entries of a folder, or the file itself.

        Raises:
            FileNotFoundError: the path does not exist.
        """
        path = self._strip_protocol(path)
        one = self.info(path)
        found = [one]
        if one["type"] == "directory":
            with os.scandir(path) as entries:
                names = sorted(entry.path for entry in entries)
            found = [_described(name, _stat(name)) for name in names]
        return found if detail else [one["name"] for one in found]

    def _open(self, path: str, mode: str = "rb", **_: Any) -> IO[bytes]:
        if mode != "rb":
            _refuse(path)
        return open(path, "rb")

    def cat_file(
        self, path: str, start: Range = None, end: Range = None, **_: Any
    ) -> bytes:
        """Return the bytes of a file, or some of them."""
        [found] = self.cat_ranges([path], [start], [end], on_error="raise")
        return bytes(found)

    def cat_ranges(
        self,
        paths: Sequence[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[Any]:
        """Return ranges of files, opened once each; by default, errors are returned.

        Raises:
            ValueError: the lists have different lengths.
        """
        names = [self._strip_protocol(path) for path in paths]
        begins = _listed(starts, len(names))
        limits = _listed(ends, len(names))
        found: list[Any] = [None] * len(names)
        for name in dict.fromkeys(names):
            try:
                fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                if on_error == "raise":
                    raise
                for at in (n for n, one in enumerate(names) if one == name):
                    found[at] = error
                continue
            try:
                for at in (n for n, one in enumerate(names) if one == name):
                    found[at] = _read(fd, begins[at], limits[at])
            finally:
                os.close(fd)
        return found

    def modified(self, path: str) -> datetime:
        """Return when the content of a file was changed."""
        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def ukey(self, path: str) -> str:
        """Return a key that changes when the file changes."""
        one = self.info(path)
        return f"{one['ino']}-{one['size']}-{one['mtime']}"

    def _refused(self, path: Any, *_: Any, **__: Any) -> NoReturn:
        """Refuse an operation that would change a file.

        Raises:
            OSError: EROFS, always.
        """
        _refuse(path)

    cp_file = copy = mkdir = makedirs = mv = pipe = pipe_file = _refused
    put = put_file = rm = rm_file = rmdir = touch = _refused


def _described(path: str, found: os.stat_result | None) -> dict[str, Any]:
    if found is None:
        return {"name": path, "size": 0, "type": "other"}
    kind = "directory" if stat.S_ISDIR(found.st_mode) else "file"
    return {
        "name": path,
        "size": found.st_size,
        "type": kind if kind == "directory" or stat.S_ISREG(found.st_mode) else "other",
        "mode": found.st_mode,
        "mtime": found.st_mtime,
        "ino": found.st_ino,
    }


def _stat(path: str) -> os.stat_result | None:
    """Return the state of a file; None for a dangling link."""
    try:
        return os.stat(path)
    except OSError:
        return None


def _read(fd: int, start: Range, end: Range) -> bytes:
    """Read from `start` to before `end`; negative places count from the end."""
    size = os.fstat(fd).st_size
    first, limit, _ = slice(start, end).indices(size)
    parts = []
    while first < limit and (part := os.pread(fd, limit - first, first)):
        parts.append(part)
        first += len(part)
    return b"".join(parts)


def _listed(values: Any, count: int) -> list[Any]:
    found = list(values) if isinstance(values, list | tuple) else [values] * count
    if len(found) != count:
        raise ValueError(f"{len(found)} places for {count} paths")
    return found


def _refuse(path: Any) -> NoReturn:
    raise OSError(
        errno.EROFS, "monarch:// can only be read; write to the path itself", path
    )
