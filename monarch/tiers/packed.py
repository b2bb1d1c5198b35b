"""The packed contents of a retained Tier, and how they are decoded."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from monarch.codec import PLAIN, Codec
from monarch.native import Packing, packing_id, read_index
from monarch.tiers.tier import TierSettings


@dataclass(frozen=True, slots=True)
class Segment:
    """A pack file.

    Args:
        files: the number that begin in it: each Extent of a large one has a frame.
        size_bytes: the unpacked size of its contents.
        stored_bytes: the size of its frames.
    """

    name: str
    files: int
    size_bytes: int
    stored_bytes: int

    @classmethod
    def at(cls, path: Path) -> Self | None:
        """Return the contents of a pack file; None if its index is not valid."""
        index = read_index(path)
        if index is None:
            return None
        files = int((index["extent"] == 0).sum())
        plain, stored = int(index["plain"].sum()), int(index["bytes"].sum())
        return cls(path.name, files, plain, stored)


@dataclass(frozen=True)
class Packs:
    """The pack files of a retained Tier.

    Args:
        configured: the Tier's packing configuration.
        packings: the packings of its Files, by rule, including dictionaries; none if
            the codec was to be chosen, and the Tier is plain.
        ratio: the expected compression ratio of its Files.
        why: the reason for choosing the codec; "" if it was configured.
    """

    segments: tuple[Segment, ...]
    configured: str
    packings: tuple[Packing, ...]
    ratio: float
    why: str

    @cached_property
    def by_id(self) -> dict[int, Packing]:
        """The packings by the ID of their frames in an index."""
        return {packing_id(packing): packing for packing in self.packings}

    @property
    def codec(self) -> str:
        """The codec of Files without a rule."""
        return str(self.packings[0].codec) if self.packings else PLAIN

    @property
    def files(self) -> int:
        """The number of packed Files."""
        return sum(segment.files for segment in self.segments)

    @property
    def size_bytes(self) -> int:
        """The unpacked bytes of these Files."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def stored_bytes(self) -> int:
        """The bytes that they take in the Tier."""
        return sum(segment.stored_bytes for segment in self.segments)

    def missing(self, directory: Path) -> int:
        """Return how many of the Files no longer exist."""
        return sum(
            segment.files
            for segment in self.segments
            if Segment.at(directory / segment.name) != segment
        )

    def text(self) -> str:
        """Return this as JSON."""
        return json.dumps(
            {
                "segments": [
                    [one.name, one.files, one.size_bytes, one.stored_bytes]
                    for one in self.segments
                ],
                "configured": self.configured,
                "packings": [
                    [
                        *(one.tier, str(one.codec), one.rule),
                        base64.b64encode(one.dictionary).decode(),
                    ]
                    for one in self.packings
                ],
                "ratio": self.ratio,
                "why": self.why,
            }
        )

    @classmethod
    def read(cls, text: str) -> Self:
        """Return an object from JSON.

        Raises:
            ValueError: the JSON is not of this version.
        """
        found = json.loads(text)
        try:
            segments = [Segment(*row) for row in found["segments"]]
            if any("/" in one.name or one.name.startswith(".") for one in segments):
                raise ValueError("a pack file with a path")
            packings = [
                Packing(tier, Codec.parse(codec), base64.b64decode(dictionary), rule)
                for tier, codec, rule, dictionary in found["packings"]
            ]
            ratio, why = float(found["ratio"]), str(found["why"])
            return cls(
                tuple(segments), found["configured"], tuple(packings), ratio, why
            )
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not of this version: {error}") from error


def configuration(settings: TierSettings, facts: Sequence[int] = ()) -> str:
    """Return the packing configuration of a Tier as text, for comparison.

    Args:
        facts: what else the packing depends on.
    """
    rules = [[list(files), codec] for files, codec in settings.codecs]
    return json.dumps([settings.codec, rules, *facts])


def segments_in(directory: Path) -> list[Segment]:
    """Return the pack files of a directory that have a valid index."""
    found = (Segment.at(path) for path in sorted(directory.glob("segment-*.pack")))
    return [one for one in found if one is not None]
