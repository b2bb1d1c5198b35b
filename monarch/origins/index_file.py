"""Index files: saving and reading the index of a root, and comparing it with the root.

The file is the block described in ``layout.h``, then two lines of text: a checksum of
the block's header and of the second line, and a JSON object with the root's path, the
patterns and the counts of unmanaged names. The block's own digest covers the rest.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from xxhash import xxh3_64_intdigest

from monarch import native
from monarch.atomic_file import whole_file
from monarch.catalog.block import NONE32, Block, Bytes
from monarch.catalog.patterns import Patterns
from monarch.catalog.survey import Refused, Unmanaged
from monarch.errors import printable, shown
from monarch.origins.relocation import IndexUnusableError, find_outside
from monarch.origins.root import OriginRoot
from monarch.origins.walk import Count

DESCRIPTION_BYTES_MAX = 64 << 20
READ_BYTES = 64 << 20
FORMAT = 1
_HEADER_BYTES = native.DTYPES["index"].itemsize

BATCH_DIRECTORIES = 256
# Some file systems store times in units of one or two seconds: a name that changed
# so shortly before the scan may have changed again with the same time.
COARSE_NS = 2_000_000_000
# The number of compared Entries if another node has just made the index.
SAMPLE = 8


@dataclass(frozen=True, slots=True)
class RootIndex:
    """The index of one root, and the parameters of its scan.

    Attributes:
        root: the realpath of the root at the time of the scan.
        unmanaged: the numbers of names that are left to the origin, by reason.
    """

    block: Block
    root: bytes
    patterns: Patterns
    unmanaged: Mapping[Unmanaged, int] = field(default_factory=dict)
    refused: Refused = field(default_factory=Refused)


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """The data in the first and last bytes of an index file."""

    root: bytes
    patterns: Patterns
    files: int
    scanned_ns: int


def save_index(
    file: Path, index: RootIndex, *, mode: int | None = None, durable: bool = True
) -> int:
    """Write an index file; return its size.

    Args:
        mode: the mode of the file; None: according to the process's umask.
        durable: see whole_file().
    """
    if mode is None:
        umask = os.umask(0o077)
        os.umask(umask)
        mode = 0o666 & ~umask
    with whole_file(file, mode=mode, durable=durable) as out:
        described = _described(index)
        out.write(index.block.memory.data)
        out.write(described)
    return len(index.block.memory) + len(described)


def read_index(file: Path) -> RootIndex:
    """Read an index file and verify it, because any user may have written it.

    Raises:
        IndexUnusableError: the file is not an index file, or is damaged.
    """
    try:
        with file.open("rb") as source:
            memory = _read_block(source)
            text = source.read(DESCRIPTION_BYTES_MAX + 1)
    except OSError as error:
        raise IndexUnusableError(error.strerror or "the file cannot be read") from error
    described, block = _read_description(memory[:_HEADER_BYTES], text), Block(memory)
    try:
        native.index_check(memory)
    except native.BlockError as error:
        raise IndexUnusableError(str(error)) from error
    files = block.entries["file"]
    if np.any((files >= native.CONSTANTS["FILE_SHARED"]) & (files != NONE32)):
        raise IndexUnusableError("damaged (files of another index)")
    return RootIndex(
        block=block,
        root=os.fsencode(described["root"]),
        patterns=_patterns(described),
        unmanaged={Unmanaged(k): int(v) for k, v in described["unmanaged"].items()},
        refused=_refused(described.get("refused", {})),
    )


def read_summary(file: Path) -> IndexSummary:
    """Read the summary of an index file, without its Entries.

    Raises:
        IndexUnusableError: it is not an index file of this version, or is damaged.
    """
    try:
        with file.open("rb") as source:
            head, length = _read_head(source)
            source.seek(length)
            text = source.read(DESCRIPTION_BYTES_MAX + 1)
    except OSError as error:
        raise IndexUnusableError(error.strerror or "the file cannot be read") from error
    described = _read_description(np.frombuffer(head, np.uint8), text)
    header = Block(np.frombuffer(head, np.uint8)).header
    return IndexSummary(
        root=os.fsencode(described["root"]),
        patterns=_patterns(described),
        files=int(header["file_count"]),
        scanned_ns=int(header["scanned_ns"]),
    )


def _patterns(described: Mapping[str, Any]) -> Patterns:
    return Patterns.of(described["patterns"])


def _read_head(source: BinaryIO) -> tuple[bytes, int]:
    """Return the header of the block, and the length of the block."""
    dtype = native.DTYPES["index"]
    head = source.read(dtype.itemsize)
    if len(head) < dtype.itemsize or not head.startswith(b"MONARCH\0"):
        raise IndexUnusableError("not an index file")
    seg = np.frombuffer(head, dtype)[0]["seg"]
    if seg["version"] != native.CONSTANTS["LAYOUT_VERSION"]:
        raise IndexUnusableError("written by another version of Monarch")
    length = int(seg["length"])
    if not dtype.itemsize <= length <= os.fstat(source.fileno()).st_size:
        raise IndexUnusableError("damaged (incomplete)")
    return head, length


def _read_block(source: BinaryIO) -> Bytes:
    head, length = _read_head(source)
    memory = np.empty(length, np.uint8)
    memory[: len(head)] = np.frombuffer(head, np.uint8)
    rest = memory.data[len(head) :]
    while len(rest):
        count = source.readinto(rest[:READ_BYTES])  # type: ignore[attr-defined]
        if not count:
            raise IndexUnusableError("damaged (incomplete)")
        rest = rest[count:]
    return memory


def _described(index: RootIndex) -> bytes:
    description = {
        "format": FORMAT,
        "root": os.fsdecode(index.root),
        "patterns": asdict(index.patterns),
        "unmanaged": {str(reason): n for reason, n in index.unmanaged.items()},
        "refused": asdict(index.refused),
    }
    line = json.dumps(description, sort_keys=True).encode() + b"\n"
    return _seal(index.block.memory[:_HEADER_BYTES], line) + line


def _refused(described: Mapping[str, Any]) -> Refused:
    examples = tuple(printable(str(one)) for one in described.get("examples", ()))
    return Refused(int(described.get("names", 0)), examples)


def _seal(header: Bytes, line: bytes) -> bytes:
    return b"%016x\n" % xxh3_64_intdigest(header.tobytes() + line)


def _read_description(header: Bytes, text: bytes) -> dict[str, Any]:
    seal, newline, line = text.partition(b"\n")
    if seal + newline != _seal(header, line):
        raise IndexUnusableError("damaged (description)")
    described: dict[str, Any] = json.loads(line)
    if described.get("format") != FORMAT:
        raise IndexUnusableError("written by another version of Monarch")
    return described


# -- freshness ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Mismatch:
    """Why an index does not match its root."""

    directory: bytes
    problem: str


def check_fresh(
    index: RootIndex,
    root: OriginRoot,
    patterns: Patterns,
    *,
    threads: int = 16,
    progress: Count | None = None,
) -> None:
    """Compare an index with its root; files are compared when they are staged.

    Args:
        progress: called with the number of directories so far.

    Raises:
        IndexUnusableError: the index is of another root or other patterns, a directory
            has changed, or this process cannot search a directory that the scan could.
    """
    header = index.block.header
    # The device number of a network file system differs by node and by mount.
    same_place = int(header["root_dev"]) == root.dev or index.root == root.path
    if not same_place or int(header["root_ino"]) != root.ino:
        raise IndexUnusableError(f"made from another directory, {shown(index.root)}")
    if index.patterns != patterns:
        raise IndexUnusableError(_difference(index.patterns, patterns))
    fault = _first_mismatch(index.block, root, threads, progress)
    if fault is not None:
        path = os.path.join(root.path, fault.directory)
        raise IndexUnusableError(f"{shown(path)} {fault.problem}")


def is_same_tree(block: Block, root: OriginRoot) -> bool:
    """Return whether a root contains the names that another node has just scanned.

    Roots of node-local file systems often have the same inode, but different contents;
    a shared file system has changed little in the meantime.
    """
    fd = os.open(root.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return all(
            not places or any(_is_same(block, fd, place) for place in places)
            for places in (
                _sample(0, block.name_count),
                _sample(block.name_count, block.hop_start),
            )
        )
    finally:
        os.close(fd)


def _sample(start: int, stop: int) -> list[int]:
    """Return some Entries of a range."""
    count = min(SAMPLE, stop - start)
    return [start + number * (stop - start) // count for number in range(count)]


def _is_same(block: Block, fd: int, entry: int) -> bool:
    record = block.entries[entry]
    try:
        follow = block.is_outer(entry)
        found = os.stat(block.path(entry) or b".", dir_fd=fd, follow_symlinks=follow)
    except OSError:
        return False
    names = ("ino", "size", "mtime_ns", "ctime_ns")
    return [int(record[name]) for name in names] == [
        getattr(found, f"st_{name}") for name in names
    ]


def _difference(then: Patterns, now: Patterns) -> str:
    for name in Patterns.__slots__:
        old, new = getattr(then, name), getattr(now, name)
        if old != new:
            old, new = (
                one if isinstance(one, str) else list(one) for one in (old, new)
            )
            return f"made with {name} {old}, but {name} is now {new}"
    return "made with other patterns"


def _first_mismatch(
    block: Block, root: OriginRoot, threads: int, progress: Count | None
) -> _Mismatch | None:
    devices = find_outside(block, root, threads).devices
    # The names in directories that links only pass do not matter.
    passed = block.hop_start + int(block.header["holder_count"])
    directories = [entry for entry in block.directories() if entry < passed]
    links = _links(block, _is_close(block, directories))
    looked_at = max(len(directories), len(links))
    starts = range(0, looked_at, BATCH_DIRECTORIES)
    fd = os.open(root.path, os.O_RDONLY | os.O_DIRECTORY)
    pool = ThreadPoolExecutor(threads, thread_name_prefix="fresh")
    search = not _scanned_like_us(block)

    def look(start: int) -> _Mismatch | None:
        part = directories[start : start + BATCH_DIRECTORIES]
        if progress is not None:
            progress(start)
        changed = next(_changed(block, devices, fd, part), None)
        if changed is None and search:
            changed = next(_closed(block, fd, part), None)
        if changed is None:
            part = links[start : start + BATCH_DIRECTORIES]
            changed = next(_led_elsewhere(block, fd, part), None)
        return changed

    try:
        found = (fault for fault in pool.map(look, starts) if fault is not None)
        return next(found, None)
    finally:
        pool.shutdown(cancel_futures=True)
        os.close(fd)


def _is_close(block: Block, directories: list[int]) -> bool:
    """Return whether a directory changed too close to the scan for coarse times."""
    records = block.entries[directories]
    since = int(block.header["scanned_ns"]) - COARSE_NS
    times = np.maximum(records["mtime_ns"], records["ctime_ns"])
    return bool(np.any(times >= since))


def _links(block: Block, all_of_them: bool) -> list[int]:
    """Return the links that are resolved without the origin.

    Args:
        all_of_them: whether to include links in directories whose times are compared.
    """
    modes, targets = block.modes(), block.entries["target"]
    found = (modes & 0o170000 == stat.S_IFLNK) & (targets != NONE32)
    if not all_of_them:
        found[: block.hop_start] = False
    links: list[int] = np.flatnonzero(found).tolist()
    return links


def _led_elsewhere(block: Block, fd: int, links: list[int]) -> Iterator[_Mismatch]:
    """Yield directories of links whose target has changed since the scan."""
    for link in links:
        path, target = block.path(link), int(block.entries["target"][link])
        try:
            found = os.stat(path, dir_fd=fd).st_ino
        except OSError:
            found = 0
        if found != int(block.entries["ino"][target]):
            yield _Mismatch(os.path.dirname(path), "has changed since")


def _scanned_like_us(block: Block) -> bool:
    scan = int(block.header["scan_euid"]), int(block.header["scan_rights"])
    return scan == (os.geteuid(), native.rights_mark())


def _closed(block: Block, fd: int, entries: list[int]) -> Iterator[_Mismatch]:
    """Yield directories that the scan could search and this process cannot."""
    for entry in entries:
        path = block.lookup_path(entry)
        if not os.access(path, os.X_OK, dir_fd=fd, effective_ids=True):
            yield _Mismatch(block.path(entry), "cannot be searched by this process")


def _changed(
    block: Block, devices: Mapping[int, int], fd: int, entries: list[int]
) -> Iterator[_Mismatch]:
    """Yield directories that changed since the scan.

    A program can reset the mtime of a directory, but not its ctime.
    """
    records = block.entries[entries]
    paths = [block.lookup_path(entry) for entry in entries]
    found = native.find_names(fd, paths, rights=False)
    here = np.array([devices.get(dev, dev) for dev in block.attrs["dev"].tolist()])
    rows, _ = native.make_rows(found, 0)
    same = (found["status"] == 0) & (found["dev"] == here[records["attr"]])
    same &= found["mode"] == block.attrs["mode"][records["attr"]]
    for name in ("ino", "mtime_ns", "ctime_ns"):
        same &= rows[name] == records[name]
    for place in np.flatnonzero(~same).tolist():
        yield _Mismatch(block.path(entries[place]), "has changed since")
