"""Builds an index block from a survey: sorted Entries, numbers and attributes."""

from __future__ import annotations

import stat
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from posixpath import dirname

import numpy as np
import numpy.typing as npt

from monarch import native
from monarch.catalog.block import NONE32, Block, Records, aligned
from monarch.catalog.survey import ATTR, ROW, Listing, Survey

Numbers = npt.NDArray[np.int64]

SLOTS_PER_ENTRY = (8, 7)
"""Slots by path per Entry: at 7/8 full, look-ups that succeed are still fast."""
INODE_SLOTS_PER_ENTRY = (5, 3)
"""Slots by inode per Entry: 60% full, because most look-ups fail."""

_COPIED = ("ino", "size", "mtime_ns", "ctime_ns", "atime_ns", "blocks")


def build_block(survey: Survey) -> Block:
    """Lay out the index block of one root.

    Raises:
        FileExistsError: a path occurs twice.
    """
    listed = _Listed(survey)
    draft = _Draft(survey, listed)
    block = Block(draft.allocate())
    draft.fill(block)
    native.index_finish(block.memory)
    return block


def unlisted_links(survey: Survey, block: Block) -> int:
    """Return the number of links whose target is not in the block."""
    links = block.modes() & 0o170000 == stat.S_IFLNK
    resolved = np.count_nonzero(block.entries["target"][links] != NONE32)
    return len(survey.links) - int(resolved)


class _Listed:
    """All names of a survey in the order of its listings, and their order by path.

    Row 0 is the root itself; the names of the listings follow, then the targets and
    hops outside the root, in the order of their Entries.
    """

    def __init__(self, survey: Survey) -> None:
        listings = survey.listings
        counts = [len(listing) for listing in listings]
        self.bases = (1 + np.cumsum([0, *counts])[:-1]).tolist()
        self._top, self._outside = survey.top, survey.outside
        self.lengths = np.concatenate(
            [
                [0],
                *(np.diff(listing.ends, prepend=0) for listing in listings),
                [len(path) for path in (*survey.outside.outer, *survey.outside.hops)],
            ]
        ).astype(np.int64)
        self._listings = listings
        self.names = 1 + sum(counts)
        self.order = self._ordered()
        self.outer_links = self._rows_of(survey.outside.outer)
        self.starts, self.arena_bytes = self._placed()

    def __len__(self) -> int:
        return len(self.lengths)

    def sorted_rows(self) -> Records:
        """Return the rows in the order of their Entries."""
        rows = [self._top.astype(ROW), *(listing.rows for listing in self._listings)]
        rows += [self._outside.outer_rows, self._outside.hop_rows]
        return np.concatenate(rows)[self.order]

    def _rows_of(self, links: tuple[bytes, ...]) -> list[int]:
        found = self.find(set(links))
        return [found[link] for link in links]

    def _ordered(self) -> Numbers:
        """Return the row numbers in the order of their paths.

        Each listing is sorted. A path that sorts between two names of a listing is
        below one of its directories. So each listing is cut where its directories
        begin, and sorting the pieces by their first path sorts all names.
        """
        inside: dict[bytes, list[bytes]] = {}
        for listing in self._listings:
            if listing.path:
                inside.setdefault(dirname(listing.path), []).append(listing.path)
        pieces = [(b"", 0, 1)]
        for base, listing in zip(self.bases, self._listings, strict=True):
            cuts = _cuts(listing, inside.get(listing.path, []))
            for start, stop in pairwise(cuts):
                pieces.append((listing.name(start), base + start, stop - start))
        pieces.sort()
        starts = np.array([piece[1] for piece in pieces], np.int64)
        counts = np.array([piece[2] for piece in pieces], np.int64)
        places = np.cumsum(counts) - counts
        names = np.repeat(starts - places, counts) + np.arange(self.names)
        return np.concatenate([names, np.arange(self.names, len(self))])

    def arena(self) -> Iterator[bytes]:
        """Yield the paths of each listing, and of hops, each followed by a NUL."""
        yield b"\0"  # the root
        for listing in self._listings:
            names = listing.names()
            yield b"".join([names[number] + b"\0" for number in listing.order.tolist()])
        yield b"".join([path + b"\0" for path in self._outside.hops])

    def _placed(self) -> tuple[Numbers, int]:
        """Return the start of each row's path in the arena, and the arena's length."""
        orders = [
            base + listing.order.astype(np.int64)
            for base, listing in zip(self.bases, self._listings, strict=True)
        ]
        outer = self.names + len(self.outer_links)
        hops = np.arange(outer, len(self), dtype=np.int64)
        rows = np.concatenate([np.zeros(1, np.int64), *orders, hops])
        ends = np.cumsum(self.lengths[rows] + 1)
        starts = np.empty(len(self), np.int64)
        starts[rows] = ends - self.lengths[rows] - 1
        starts[self.names : outer] = starts[self.outer_links]
        return starts, int(ends[-1])

    def whole_directories(self) -> dict[int, int]:
        """Return the start of each directory's names in the arena, by row number.

        A directory with a missing name is left out.
        """
        holders = {
            listing.path: number for number, listing in enumerate(self._listings)
        }
        outer = dict(
            zip(self._outside.outer, range(self.names, len(self)), strict=False)
        )
        begins = {}
        for base, listing in zip(self.bases, self._listings, strict=True):
            if not listing.whole:
                continue
            rows = base + listing.order[:1].astype(np.int64)
            begin = int(self.starts[rows[0]]) if len(rows) else self.arena_bytes
            if not listing.path:
                begins[0] = begin
                continue
            if listing.path in outer:
                begins[outer[listing.path]] = begin
                continue
            holder = holders.get(dirname(listing.path))
            if holder is None:
                continue
            names = self._listings[holder]
            place = bisect_left(range(len(names)), listing.path, key=names.name)
            if place < len(names) and names.name(place) == listing.path:
                begins[self.bases[holder] + place] = begin
        return begins

    def targets(self, paths: set[bytes]) -> dict[bytes, int]:
        """Return the row numbers of the links and targets in `Survey.links`."""
        outer = [path + b"/" for path in self._outside.outer]
        beyond = dict(
            zip(
                (*outer, *self._outside.hops), range(self.names, len(self)), strict=True
            )
        )
        return self.find(paths - beyond.keys()) | beyond

    def find(self, paths: set[bytes]) -> dict[bytes, int]:
        """Return the row numbers of the names among them that are listed."""
        found = {b"": 0} if b"" in paths else {}
        wanted: dict[bytes, set[bytes]] = {}
        for path in paths - {b""}:
            wanted.setdefault(dirname(path), set()).add(path)
        for base, listing in zip(self.bases, self._listings, strict=True):
            here = wanted.get(listing.path)
            if here:
                names = enumerate(listing.names(), base)
                found.update({name: row for row, name in names if name in here})
        return found


def _cuts(listing: Listing, directories: list[bytes]) -> list[int]:
    count = len(listing)
    marks = {
        bisect_left(range(count), path + b"/", key=listing.name) for path in directories
    }
    return sorted({0, count, *marks}) if count else []


@dataclass(frozen=True, slots=True)
class _Numbered:
    """Numbers, in path order, of objects that several Entries may name."""

    of_entry: npt.NDArray[np.uint32]
    first: Numbers

    @classmethod
    def by_key(cls, places: Numbers, keys: Records) -> _Numbered:
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.uint32)
        by_place = np.argsort(first)
        rank[by_place] = np.arange(len(first), dtype=np.uint32)
        return cls(rank[inverse], places[first[by_place]])


class _Draft:
    """The parts of a block before its memory is allocated."""

    def __init__(self, survey: Survey, listed: _Listed) -> None:
        self._survey, self._listed = survey, listed
        self._rows = listed.sorted_rows()
        self._attrs, attr_of = np.unique(survey.attrs.astype(ATTR), return_inverse=True)
        self._attr = attr_of[self._rows["attr"]].astype(np.uint32)
        kinds = self._attrs["mode"][self._attr] & 0o170000
        self._files = self._number(kinds == stat.S_IFREG)
        self._directories = self._number(kinds == stat.S_IFDIR)
        self._links = np.flatnonzero(kinds == stat.S_IFLNK)
        self._kinds = kinds

    def _number(self, mask: npt.NDArray[np.bool_]) -> _Numbered:
        """Number by (device, inode), or faster by inode if all have one device."""
        places = np.flatnonzero(mask)
        inodes = self._rows["ino"][places]
        devices = self._attrs["dev"][self._attr[places]]
        if not len(devices) or (devices == devices[0]).all():
            return _Numbered.by_key(places, inodes)
        pairs = np.empty(len(places), [("dev", np.uint64), ("ino", np.uint64)])
        pairs["dev"], pairs["ino"] = devices, inodes
        return _Numbered.by_key(places, pairs)

    def allocate(self) -> npt.NDArray[np.uint8]:
        """Return zeroed memory of the block's length, with the header written."""
        dtypes, rows = native.DTYPES, len(self._rows)
        counts = {
            "entries": (dtypes["entry"].itemsize, rows),
            "slots": (
                dtypes["slot"].itemsize,
                _slot_count(self._listed.names, SLOTS_PER_ENTRY),
            ),
            "inode_slots": (
                dtypes["slot"].itemsize,
                _slot_count(rows, INODE_SLOTS_PER_ENTRY),
            ),
            "attrs": (dtypes["attr"].itemsize, len(self._attrs)),
            "first_entry": (4, len(self._files.first)),
            "arena": (1, self._listed.arena_bytes),
        }
        header = np.zeros(1, dtypes["index"])
        end = aligned(header.itemsize)
        for name, (item_bytes, count) in counts.items():
            header[name] = end
            end = aligned(end + item_bytes * count)
        self._describe(header, end)
        memory = np.zeros(end, np.uint8)
        memory[: header.itemsize] = header.view(np.uint8)
        return memory

    def _describe(self, header: Records, length: int) -> None:
        seg = header["seg"]
        seg["magic"] = b"MONARCH"
        seg["version"] = native.CONSTANTS["LAYOUT_VERSION"]
        seg["kind"] = native.SegmentKind.INDEX
        seg["length"] = length
        top = self._survey.top[0]
        header["root_dev"] = self._survey.attrs["dev"][top["attr"]]
        header["root_ino"] = top["ino"]
        header["scanned_ns"] = self._survey.scanned_ns
        header["scan_euid"] = self._survey.scan_euid
        header["scan_rights"] = self._survey.scan_rights
        header["name_count"] = self._listed.names
        header["outer_count"] = len(self._survey.outside.outer)
        header["holder_count"] = self._survey.outside.holders
        header["entry_count"] = len(self._rows)
        header["file_count"] = len(self._files.first)
        header["dir_count"] = len(self._directories.first)
        header["attr_count"] = len(self._attrs)
        rows = len(self._rows)
        header["slot_count"] = _slot_count(self._listed.names, SLOTS_PER_ENTRY)
        header["inode_slot_count"] = _slot_count(rows, INODE_SLOTS_PER_ENTRY)
        header["arena_bytes"] = self._listed.arena_bytes

    def fill(self, block: Block) -> None:
        """Write the Entries, attributes, first Entries and paths."""
        entries, listed = block.entries, self._listed
        for name in _COPIED:
            entries[name] = self._rows[name]
        paths = listed.starts << 16 | listed.lengths
        entries["path"] = paths[listed.order]
        entries["attr"] = self._attr
        entries["file"] = self._file_numbers()
        self._point_targets(entries)
        for name in ATTR.names or ():
            block.attrs[name] = self._attrs[name]
        block.first_entry[:] = self._files.first
        end = 0
        for paths_of_one in listed.arena():
            start, end = end, end + len(paths_of_one)
            block.arena[start:end] = np.frombuffer(paths_of_one, np.uint8)

    def _file_numbers(self) -> npt.NDArray[np.uint32]:
        numbers = np.full(len(self._rows), NONE32, np.uint32)
        numbers[self._kinds == stat.S_IFREG] = self._files.of_entry
        numbers[self._kinds == stat.S_IFDIR] = self._directories.of_entry
        return numbers

    def _point_targets(self, entries: Records) -> None:
        """Set the target of each Entry; a link has the number of its target, too."""
        own = np.arange(len(entries), dtype=np.uint32)
        place = np.empty(len(own), np.int64)
        place[self._listed.order] = own
        entries["target"] = own
        entries["target"][self._kinds == stat.S_IFDIR] = NONE32
        for row, begin in self._listed.whole_directories().items():
            entries["target"][place[row]] = min(begin, int(NONE32))
        if len(self._links):
            self._point_links(entries, place)

    def _point_links(self, entries: Records, place: Numbers) -> None:
        listed, links = self._listed, self._survey.links
        rows = listed.targets(set(links) | set(links.values()))
        entries["target"][self._links] = NONE32
        for link, target in links.items():
            if link in rows and target in rows:
                entry, goal = place[rows[link]], place[rows[target]]
                if self._kinds[goal] != stat.S_IFLNK:
                    entries["target"][entry] = goal
                    entries["file"][entry] = entries["file"][goal]


def _slot_count(entries: int, ratio: tuple[int, int]) -> int:
    slots, used = ratio
    return entries * slots // used + 1
