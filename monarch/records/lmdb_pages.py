"""The Records of an LMDB database, found in the pages of its B-tree.

Only branch and leaf pages are read: a value that does not fit a leaf lies in overflow
pages, and the leaf has the number of the first one. Both formats are supported: data
version 1 (LMDB 0.9) and 3 (LMDB 1.0). The layouts are those of struct MDB_page,
MDB_node, MDB_meta and MDB_db in LMDB's mdb.c.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from monarch.records.headers import HeaderReader, Opens
from monarch.records.index import RecordIndex, units_of

Array = npt.NDArray[Any]

_MAGIC: Final = 0xBEEFC0DE
_NONE: Final = (1 << 64) - 1
_DUPSORT: Final = 0x04
_BRANCH, _LEAF, _LEAF2 = 0x01, 0x02, 0x20
_BIG, _SUBDATA, _DUPLICATES = 0x01, 0x02, 0x04
_NODE_BYTES: Final = 8
_DB_BYTES: Final = 48
_DEPTH_MAX: Final = 64
_THREADS: Final = 16
_RUN_PAGES: Final = 256
_BATCH_PAGES: Final = 4096
_META_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a page, which differs between the formats.

    Attributes:
        head: length of the header of a page.
        flags: offset of its flags.
        lower: offset of the field with the end of its pointers.
        base: offset in the page that pointers are relative to.
        empty: the value of `lower` without nodes.
        align: alignment of values, relative to the start of their keys.
    """

    head: int
    flags: int
    lower: int
    base: int
    empty: int
    align: int


_LAYOUTS: Final = {1: Layout(16, 10, 12, 0, 16, 1), 3: Layout(24, 18, 20, 24, 0, 2)}


@dataclass(frozen=True, slots=True)
class Meta:
    """The newest meta page.

    Attributes:
        main: the MDB_db of the main database.
    """

    layout: Layout
    page_bytes: int
    last_page: int
    transaction: int
    main: bytes


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of some pages, in their order.

    Attributes:
        numbers: the page number of each row of `pages`.
        page: the row of `pages` that holds each node.
        at: start of each node in its page.
    """

    numbers: Array
    pages: Array
    page: Array
    at: Array

    def number(self, skip: int | Array, width: int) -> Array:
        """Return a little-endian number of each node, `skip` bytes after its start."""
        found = np.zeros(self.at.shape, np.uint64)
        for i in range(width):
            part = self.pages[self.page, self.at + skip + i].astype(np.uint64)
            found |= part << np.uint64(8 * i)
        return found

    def key(self, node: int) -> bytes:
        """Return the key of one node."""
        begin = int(self.at[node])
        page = self.pages[self.page[node]]
        size = int(page[begin + 6]) | int(page[begin + 7]) << 8
        key: bytes = page[begin + _NODE_BYTES : begin + _NODE_BYTES + size].tobytes()
        return key


def is_lmdb(start: bytes) -> bool:
    """Return whether a file begins like an LMDB database."""
    return any(_version(start, layout.head) == v for v, layout in _LAYOUTS.items())


def index_lmdb(path: Path, name: str = "", opens: Opens = HeaderReader) -> RecordIndex:
    """Return the index of a database, in the order of its keys.

    Args:
        name: name of a named database; "": the main one.

    Raises:
        RecordsError: it cannot be read, has duplicate keys, or is damaged.
    """
    with opens(str(path)) as file:
        tree = Tree(file, newest_meta(file))
        root = tree.root_of(name)
        parts = [_values(tree, nodes, plain=not name) for nodes in tree.leaves(root)]
        offsets = np.concatenate([np.empty(0, np.uint64), *(o for o, _ in parts)])
        lengths = np.concatenate([np.empty(0, np.uint64), *(s for _, s in parts)])
        if len(offsets) and int((offsets + lengths).max()) > file.size:
            raise file.refuse("is truncated: a record ends behind the end of the file")
        if newest_meta(file).transaction != tree.meta.transaction:
            raise file.refuse("was written while its index was made")
        units = units_of(offsets, lengths, file.path)
        return RecordIndex("lmdb", (file.object,), units, details={"database": name})


def newest_meta(file: HeaderReader) -> Meta:
    """Return the meta page of the last transaction.

    Raises:
        RecordsError: the file has no meta page of a known version.
    """
    start = file.fresh(0, _META_BYTES)
    for version, layout in _LAYOUTS.items():
        if _version(start, layout.head) == version:
            break
    else:
        raise file.refuse("is not an LMDB database of data version 1 or 3")
    first = _meta(start, layout)
    second = file.fresh(first.page_bytes, _META_BYTES)
    if _version(second, layout.head) != version:
        return first
    other = _meta(second, layout)
    return other if other.transaction > first.transaction else first


def name_of(key: bytes) -> str:
    """Return the name of a database; LMDB 1.0 keeps its trailing zero."""
    return key.removesuffix(b"\0").decode(errors="replace")


def _version(page: bytes, head: int) -> int:
    if len(page) < _META_BYTES or _number(page, head, 4) != _MAGIC:
        return 0
    # Bits above the data version are flags of an environment that is not little-endian.
    return _number(page, head + 4, 4)


def _number(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at : at + width], "little")


def _meta(page: bytes, layout: Layout) -> Meta:
    body = page[layout.head :]
    return Meta(
        layout,
        page_bytes=_number(body, 24, 4),
        last_page=_number(body, 120, 8),
        transaction=_number(body, 128, 8),
        main=body[72 : 72 + _DB_BYTES],
    )


class Tree:
    """The B-trees of a database file.

    Raises:
        RecordsError: its page size is impossible.
    """

    def __init__(self, file: HeaderReader, meta: Meta) -> None:
        size = meta.page_bytes
        if not 512 <= size <= 1 << 16 or size & (size - 1):
            raise file.refuse(f"is damaged: pages of {size} bytes")
        self.file = file
        self.meta = meta

    def __repr__(self) -> str:
        return f"<Tree {self.file.path}>"

    def root_of(self, name: str) -> int:
        """Return the root page of a database.

        Raises:
            RecordsError: no such database, or it has duplicate keys.
        """
        if not name:
            return self._root(self.meta.main)
        names = []
        for nodes in self.leaves(self._root(self.meta.main)):
            flags = nodes.number(4, 2)
            for node in np.flatnonzero(flags & np.uint64(_SUBDATA)).tolist():
                key = nodes.key(node)
                names.append(name_of(key))
                if names[-1] == name:
                    begin = int(self.values_at(nodes)[node])
                    page = nodes.pages[nodes.page[node]]
                    return self._root(page[begin : begin + _DB_BYTES].tobytes())
        known = f"it has {', '.join(names[:10])}" if names else "it has none"
        raise self.file.refuse(f"has no database {name!r}; {known}")

    def values_at(self, nodes: Nodes) -> Array:
        """Return the start of the value of each node of a leaf in its page."""
        keys, align = nodes.number(6, 2).astype(np.int64), self.meta.layout.align
        return nodes.at + _NODE_BYTES + -(-keys // align) * align

    def _root(self, database: bytes) -> int:
        if _number(database, 4, 2) & _DUPSORT:
            raise self.file.refuse("has several records for a key (DUPSORT)")
        return _number(database, 40, 8)

    def leaves(self, root: int) -> Iterator[Nodes]:
        """Yield the nodes of all leaf pages, in the order of the keys."""
        if root == _NONE:
            return
        level = np.array([root], np.uint64)
        for _ in range(_DEPTH_MAX):
            below = []
            for begin in range(0, len(level), _BATCH_PAGES):
                nodes, is_leaf = self._nodes(level[begin : begin + _BATCH_PAGES])
                if is_leaf:
                    yield nodes
                else:
                    low, high = nodes.number(0, 4), nodes.number(4, 2)
                    below.append(low | high << np.uint64(32))
            if not below:
                return
            level = np.concatenate(below)
            if len(level) > self.meta.last_page:
                raise self.file.refuse("is damaged: a page is in its tree twice")
        raise self.file.refuse("is damaged: its tree is too deep")

    def _nodes(self, numbers: Array) -> tuple[Nodes, bool]:
        """Return the nodes of pages of one level, and whether these are leaves."""
        layout, size = self.meta.layout, self.meta.page_bytes
        pages = self._read(numbers)
        words = pages.view("<u2")
        kinds = words[:, layout.flags // 2] & (_BRANCH | _LEAF | _LEAF2)
        kind = int(kinds[0])
        if kind not in (_BRANCH, _LEAF) or (kinds != kind).any():
            raise self.file.refuse("is damaged: a page is of the wrong kind")
        lower = words[:, layout.lower // 2].astype(np.int64)
        counts = (lower - layout.empty) // 2
        if (counts < 0).any() or (layout.head + 2 * counts > size).any():
            raise self.file.refuse("is damaged: a page has too many nodes")
        page = np.repeat(np.arange(len(pages)), counts)
        slot = np.arange(len(page)) - np.repeat(np.cumsum(counts) - counts, counts)
        at = words[page, layout.head // 2 + slot].astype(np.int64) + layout.base
        if (at + _NODE_BYTES > size).any():
            raise self.file.refuse("is damaged: a node lies outside of its page")
        return Nodes(numbers, pages, page, at), kind == _LEAF

    def _read(self, numbers: Array) -> Array:
        """Return pages, one per row; adjacent pages are read by one request."""
        size, last = self.meta.page_bytes, self.meta.last_page
        if len(numbers) and int(numbers.max()) > last:
            raise self.file.refuse("is damaged: a page lies behind the last one")
        found = np.zeros((len(numbers), size), np.uint8)
        order = np.argsort(numbers)
        sorted_numbers = numbers[order].astype(np.int64)
        ends = np.flatnonzero(np.diff(sorted_numbers) != 1) + 1
        bounds = [0, *ends.tolist(), len(numbers)]
        runs = [
            (begin, min(begin + _RUN_PAGES, stop))
            for start, stop in itertools.pairwise(bounds)
            for begin in range(start, stop, _RUN_PAGES)
        ]

        def fetch(run: tuple[int, int]) -> None:
            begin, end = run
            length = (end - begin) * size
            data = self.file.fresh(int(sorted_numbers[begin]) * size, length)
            if len(data) != length:
                raise self.file.refuse("is truncated")
            rows = np.frombuffer(data, np.uint8).reshape(-1, size)
            found[order[begin:end]] = rows

        with ThreadPoolExecutor(min(_THREADS, len(runs) or 1)) as pool:
            list(pool.map(fetch, runs))
        return found


def _values(tree: Tree, nodes: Nodes, *, plain: bool) -> tuple[Array, Array]:
    """Return the file offset and the length of the value of each node.

    Args:
        plain: the main database is read, which may hold named databases.
    """
    size, layout = tree.meta.page_bytes, tree.meta.layout
    lengths, flags = nodes.number(0, 4), nodes.number(4, 2)
    if (flags & np.uint64(_DUPLICATES)).any():
        raise tree.file.refuse("has several records for a key")
    named = np.flatnonzero(flags & np.uint64(_SUBDATA)).tolist()
    if named and plain:
        names = ", ".join(map(name_of, map(nodes.key, named[:10])))
        raise tree.file.refuse(f"has named databases; add ::NAME, such as of {names}")
    data = tree.values_at(nodes)
    big = (flags & np.uint64(_BIG)) != 0
    width = np.where(big, 8, lengths.astype(np.int64))
    if (data + width > size).any():
        raise tree.file.refuse("is damaged: a record lies outside of its page")
    begins = nodes.numbers[nodes.page] * np.uint64(size)
    offsets = begins + data.astype(np.uint64)
    if big.any():
        chosen = Nodes(nodes.numbers, nodes.pages, nodes.page[big], data[big])
        first = chosen.number(0, 8)
        if int(first.max()) > tree.meta.last_page:
            raise tree.file.refuse("is damaged: a record lies behind the last page")
        offsets[big] = first * np.uint64(size) + np.uint64(layout.head)
    return offsets, lengths
