"""Synthetic surveys, for tests of the catalog that need no directory."""

import numpy as np

from monarch.catalog.block import Block
from monarch.catalog.build import build_block
from monarch.catalog.survey import ATTR, ROW, Listing, Survey

DIRECTORY, FILE = 0, 1
SHARED = [(0o40755, 0, 0, 2, 42, 4096, 1), (0o100644, 0, 0, 1, 42, 4096, 1)]


def rows(first_ino: int, sizes: list[int], attr: int = FILE) -> np.ndarray:
    """Metadata of names with these sizes and one inode after the other."""
    made = np.zeros(len(sizes), ROW)
    made["ino"] = np.arange(first_ino, first_ino + len(sizes))
    made["size"] = sizes
    made["attr"] = attr
    return made


def flat_survey(names: list[bytes], sizes: list[int], root_ino: int = 1) -> Survey:
    """A root that holds nothing but some files."""
    listing = Listing.of(b"", names, rows(root_ino + 1, sizes))
    top = rows(root_ino, [0], DIRECTORY)
    return Survey(b"/root", top, (listing,), np.array(SHARED, ATTR), {}, 0, 0, 0)


def flat_block(sizes: list[int], root_ino: int = 1, name_bytes: int = 8) -> Block:
    """The index of a root with a file of each size."""
    names = [b"%0*d" % (name_bytes, number) for number in range(len(sizes))]
    survey = flat_survey(names, sizes, root_ino)
    return build_block(survey)
