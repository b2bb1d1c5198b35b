"""What the first node fixes for all: the Catalog, and who can hold how much."""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Self

import numpy as np

from monarch import config, native
from monarch.catalog.block import Block
from monarch.catalog.segment import catalog_digest
from monarch.errors import MonarchError
from monarch.origins.fresh import is_same_tree
from monarch.origins.index import Dataset, Indexed
from monarch.origins.layout import LAYOUT
from monarch.origins.root import open_root
from monarch.origins.saved import RootIndex
from monarch.peers.protocol import Member, Standing, View
from monarch.placement import Mode, Node

SOURCE: Final = "OpenSSL's library (libcrypto.so.3)"
_PURPOSE: Final = b"monarch seals 1\0"
_NAMED_MAX: Final = 3


class Integrity(StrEnum):
    """What travels with the bytes of a File from node to node."""

    CHECKSUM = "checksum"
    MAC = "mac"


@dataclass(frozen=True, slots=True)
class Sealing:
    """How a node seals what it stages.

    Attributes:
        agreed: all nodes do, so that none will look at checksums.
    """

    key: bytes = field(repr=False)
    agreed: bool


def can_seal() -> bool:
    """Return whether this node can make seals, and check them."""
    return native.seal_library() is not None


def seal_key(secret: bytes, job: str) -> bytes:
    """Return the key of a job's seals, from which nobody can tell the secret.

    One step of HKDF-Expand (RFC 5869): the secret is random already. Its purpose sets
    it apart from the keys of handshakes, and the job's name from those of other jobs
    that are given the same secret.
    """
    told = hashlib.sha256(job.encode(errors="surrogateescape")).digest()
    return hmac.digest(secret, _PURPOSE + told + b"\1", "sha256")


def chosen(wish: str, able: Sequence[bool]) -> Integrity:
    """Return what all nodes are to use.

    Args:
        wish: `peers.integrity` of the first node.
        able: of the nodes that are there, which can make seals.
    """
    if wish == "auto":
        return Integrity.MAC if all(able) else Integrity.CHECKSUM
    return Integrity(wish)


def objection(agreed: Integrity, first: str, wish: str, *, able: bool) -> str:
    """Return why a node must not share on these terms; "" if nothing is against it.

    Args:
        first: the name of the node that has decided.
        wish: `peers.integrity` of this node.
    """
    if wish not in ("auto", agreed):
        return (
            f"peers.integrity is {wish} here and {agreed} on {first}:"
            " set the same on all nodes"
        )
    if agreed is Integrity.MAC and not able:
        return f"{first} wants peers.integrity: mac, but {inability()}"
    return ""


def inability() -> str:
    """Return what a node that cannot make seals lacks, and what to do."""
    return (
        f"{SOURCE} cannot be used on this node: install it,"
        " or set peers.integrity: checksum on all nodes"
    )


def reduced(names: Sequence[str], able: Sequence[bool]) -> str:
    """Return what to tell of a job that does without seals because of some nodes."""
    without = [name for name, can in zip(names, able, strict=True) if not can]
    more = f" and {len(without) - _NAMED_MAX} more" if len(without) > _NAMED_MAX else ""
    return (
        f"files from other nodes are checked by checksums only: {SOURCE} cannot be used"
        f" on {', '.join(without[:_NAMED_MAX])}{more}; install it there,"
        " or set peers.integrity: checksum"
    )


@dataclass(frozen=True, slots=True)
class Terms:
    """From these every node computes the same Placement.

    Attributes:
        nodes: all of them; one that came too late is taken to hold nothing.
        digest: the digest of the Catalog.
        integrity: what travels with the bytes of Files.
    """

    nodes: tuple[Node, ...]
    mode: Mode
    digest: int
    integrity: Integrity

    def told(self) -> dict[str, Any]:
        """Return the terms as JSON."""
        return {
            "nodes": [[node.name, node.capacity_bytes] for node in self.nodes],
            "mode": self.mode.value,
            "digest": self.digest,
            "integrity": self.integrity.value,
        }

    @classmethod
    def from_told(cls, told: dict[str, Any]) -> Self:
        """Return the terms that another node has told.

        Raises:
            MonarchError: they cannot be read.
        """
        try:
            nodes = tuple(Node(str(name), int(size)) for name, size in told["nodes"])
            mode, integrity = Mode(told["mode"]), Integrity(told["integrity"])
            return cls(nodes, mode, int(told["digest"]), integrity)
        except (KeyError, TypeError, ValueError) as error:
            raise MonarchError(f"its terms cannot be read ({error})") from error


def make_terms(
    names: Sequence[str], view: View, peers: config.Peers, indexed: Sequence[Indexed]
) -> Terms:
    """Fix the terms as the nodes stand now."""
    integrity = chosen(peers.integrity, [member.seals for member in view.joined])
    nodes = tuple(
        Node(name, sum(member.capacities) if _takes_part(member, integrity) else 0)
        for name, member in zip(names, view.members, strict=True)
    )
    digest = catalog_digest([one.mapped() for one in indexed], native.hash64)
    return Terms(nodes, Mode(peers.mode), digest, integrity)


def _takes_part(member: Member, integrity: Integrity) -> bool:
    able = member.seals or integrity is Integrity.CHECKSUM
    return able and member.standing is Standing.JOINED


def told_datasets(datasets: Sequence[Dataset]) -> list[list[Any]]:
    """Return as JSON which datasets an agent was given: all must agree."""
    return [
        [
            dataset.path,
            list(dataset.patterns.include),
            list(dataset.patterns.exclude),
            list(dataset.patterns.never),
        ]
        for dataset in datasets
    ]


def indexed_from(
    datasets: Sequence[Dataset], blocks: Sequence[memoryview]
) -> list[Indexed]:
    """Return the index of every dataset from the blocks of another node.

    Raises:
        MonarchError: a root is not the same directory here as it is there, or holds
            other files.
    """
    if len(blocks) != len(datasets):
        raise MonarchError(f"{len(blocks)} index blocks for {len(datasets)} datasets")
    return [_indexed(*pair) for pair in zip(datasets, blocks, strict=True)]


def _indexed(dataset: Dataset, memory: memoryview) -> Indexed:
    root = open_root(dataset.path)
    bytes_ = np.frombuffer(memory, np.uint8)
    try:
        native.index_check(bytes_)
    except native.BlockError as error:
        raise MonarchError(f"its index of {root}: {error}") from error
    block = Block(bytes_, LAYOUT)
    if int(block.header["root_ino"]) != root.ino:
        raise MonarchError(f"{root} is another directory there than here")
    if not is_same_tree(block, root):
        raise MonarchError(f"{root} holds other files there than here")
    if int(block.header["root_dev"]) != root.dev:
        block.move_to_device(root.dev, native.index_finish)
    return Indexed(
        dataset, root, RootIndex(block, root.path, dataset.patterns), loaded=True
    )
