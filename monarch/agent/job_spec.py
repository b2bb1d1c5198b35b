"""What the first node fixes for all: the Catalog, and who can hold how much."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from monarch import config, native
from monarch.agent.integrity import Integrity, chosen
from monarch.catalog.block import Block
from monarch.catalog.inventory import catalog_digest
from monarch.errors import MonarchError
from monarch.origins.dataset import Dataset, Indexed
from monarch.origins.index_file import RootIndex, is_same_tree
from monarch.origins.root import open_root
from monarch.peers.protocol import Member, Standing, View
from monarch.placement import Mode, Node


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
    digest = catalog_digest([one.mapped() for one in indexed])
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
    block = Block(bytes_)
    if int(block.header["root_ino"]) != root.ino:
        raise MonarchError(f"{root} is another directory there than here")
    if not is_same_tree(block, root):
        raise MonarchError(f"{root} holds other files there than here")
    if int(block.header["root_dev"]) != root.dev:
        block.move_to_device(root.dev)
    return Indexed(
        dataset, root, RootIndex(block, root.path, dataset.patterns), loaded=True
    )
