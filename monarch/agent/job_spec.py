"""The job spec: the decisions of the first node for all nodes of the job.

It contains the digest of the Catalog, the capacities of the nodes, the placement mode,
the size above which Files are placed by Extents, the packing of Tiers, and the
integrity: how nodes verify the bytes that they receive. Checksums detect faults, but
anybody on the network can forge them; seals are MACs with a key that only the nodes of
the job have. The first node sends the spec with the Catalog, on connections that nobody
without the secret can alter. A node that cannot or must not follow it works alone.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
from xxhash import xxh3_64_hexdigest

from monarch import native
from monarch.catalog.block import Block
from monarch.catalog.inventory import catalog_digest
from monarch.catalog.presence import large_above, large_files
from monarch.codec import FRAME_BYTES, PLAIN, Codec
from monarch.errors import MonarchError
from monarch.origins.dataset import Dataset, Indexed
from monarch.origins.index_file import RootIndex, is_same_tree
from monarch.origins.relocation import relocate
from monarch.origins.root import open_root
from monarch.peers.protocol import Member, Standing, View
from monarch.placement import Copies, Mode, Node, Placement, Units
from monarch.stager import footprint, footprints

if TYPE_CHECKING:
    from monarch.config import Config
    from monarch.placement.units import Bytes

SEAL_LIBRARY: Final = "OpenSSL's library (libcrypto.so.3)"
_PURPOSE: Final = b"monarch seals 1\0"
_NAMES_MAX: Final = 3
_POOL_PARTS: Final = 4
"""As in the data plane: pieces are packed only if the Pool can hold so many of them."""


# -- integrity ----------------------------------------------------------------------


class Integrity(StrEnum):
    """The proof that nodes send with the bytes of a File."""

    CHECKSUM = "checksum"
    MAC = "mac"


@dataclass(frozen=True, slots=True)
class Sealing:
    """How a node seals the Files that it stages.

    Attributes:
        agreed: all nodes use seals, so that none checks checksums.
    """

    key: bytes = field(repr=False)
    agreed: bool


def can_seal() -> bool:
    """Return whether this node can make and check seals."""
    return native.seal_library() is not None


def seal_key(secret: bytes, job: str) -> bytes:
    """Return the key of a job's seals, which does not reveal the secret.

    One step of HKDF-Expand (RFC 5869): the secret is random already. The purpose
    distinguishes it from the keys of handshakes, and the job's name from the keys of
    other jobs with the same secret.
    """
    name = hashlib.sha256(job.encode(errors="surrogateescape")).digest()
    return hmac.digest(secret, _PURPOSE + name + b"\1", "sha256")


def choose_integrity(setting: str, can: Sequence[bool]) -> Integrity:
    """Return the integrity for all nodes.

    Args:
        setting: `peers.integrity` of the first node.
        can: for each joined node, whether it can make seals.
    """
    if setting == "auto":
        return Integrity.MAC if all(can) else Integrity.CHECKSUM
    return Integrity(setting)


def integrity_conflict(
    chosen: Integrity, first: str, setting: str, *, can: bool
) -> str:
    """Return why a node must not follow the job spec; "" if it may.

    Args:
        first: the name of the first node.
        setting: `peers.integrity` of this node.
        can: whether this node can make seals.
    """
    if setting not in ("auto", chosen):
        return (
            f"peers.integrity is {setting} here and {chosen} on {first}:"
            " set the same on all nodes"
        )
    if chosen is Integrity.MAC and not can:
        return f"{first} requires peers.integrity: mac, but {no_seals_reason()}"
    return ""


def no_seals_reason() -> str:
    """Return why a node cannot make seals, and the remedies."""
    return (
        f"{SEAL_LIBRARY} cannot be used on this node: install it,"
        " or set peers.integrity: checksum on all nodes"
    )


def no_seals_warning(names: Sequence[str], can: Sequence[bool]) -> str:
    """Return the warning of a job that uses no seals because some nodes cannot."""
    without = [name for name, able in zip(names, can, strict=True) if not able]
    more = f" and {len(without) - _NAMES_MAX} more" if len(without) > _NAMES_MAX else ""
    return (
        f"files from other nodes are checked by checksums only: {SEAL_LIBRARY} cannot "
        f"be used on {', '.join(without[:_NAMES_MAX])}{more}; install it there,"
        " or set peers.integrity: checksum"
    )


# -- the spec -----------------------------------------------------------------------


class TierCodec(NamedTuple):
    """How a Tier is packed on all nodes, by its number.

    Attributes:
        codec: its name, or plain.
        ratio: the expected compression ratio of Files.
    """

    tier: int
    codec: str
    ratio: float

    @classmethod
    def of_payload(cls, tier: Any, codec: Any, ratio: Any) -> Self:
        """Return one that another node has sent.

        Raises:
            TypeError, ValueError: it is not valid.
        """
        name = PLAIN if codec == PLAIN else str(Codec.parse(codec))
        return cls(int(tier), name, float(ratio))


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The decisions from which every node computes the same Placement.

    Attributes:
        nodes: all nodes; a node that joined too late has the capacity 0.
        digest: the digest of the Catalog.
        large_above_bytes: larger Files are placed by Extents.
        packed: the Tiers with a codec, also those for which `auto` has chosen plain.
        copies: the wanted number for each File; None: as the mode defines.
        pool_bytes: the size of the Pool; Files too large for it are not packed.
    """

    nodes: tuple[Node, ...]
    mode: Mode
    digest: int
    integrity: Integrity
    large_above_bytes: int
    packed: tuple[TierCodec, ...] = ()
    copies: int | None = None
    pool_bytes: int = 0

    def place(self, sizes: Bytes, first_rows: Bytes) -> Placement:
        """Return the Placement, which is the same on all nodes.

        Args:
            sizes: the bytes of each File.
            first_rows: the first row of each in the staging table, then their number.
        """
        units = Units.of(first_rows, large_files(sizes, self.large_above_bytes))
        needs = packed_footprints(sizes, units, self.packed, self.pool_bytes)
        wanted = Copies(self.mode, self.copies)
        return Placement(self.nodes, needs, self.digest, wanted, units)

    def payload(self) -> dict[str, Any]:
        """Return the spec as a value that JSON can encode."""
        return {
            "nodes": [[node.name, node.capacity_bytes] for node in self.nodes],
            "mode": self.mode.value,
            "digest": self.digest,
            "integrity": self.integrity.value,
            "large_above": self.large_above_bytes,
            "copies": self.copies,
            "packed": [list(one) for one in self.packed],
            "pool": self.pool_bytes,
        }

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> Self:
        """Return the spec that another node has sent.

        Raises:
            MonarchError: it is not valid.
        """
        try:
            nodes = tuple(Node(str(name), int(size)) for name, size in payload["nodes"])
            mode, integrity = Mode(payload["mode"]), Integrity(payload["integrity"])
            digest, large = int(payload["digest"]), int(payload["large_above"])
            packed = tuple(TierCodec.of_payload(*one) for one in payload["packed"])
            wanted = payload["copies"]
            copies = None if wanted is None else int(wanted)
            pool = int(payload["pool"])
            return cls(nodes, mode, digest, integrity, large, packed, copies, pool)
        except (KeyError, TypeError, ValueError) as error:
            raise MonarchError(f"its job spec is not valid ({error})") from error


def make_job_spec(
    names: Sequence[str],
    view: View,
    config: Config,
    indexed: Sequence[Indexed],
    packed: tuple[TierCodec, ...] = (),
) -> JobSpec:
    """Return the job spec for the nodes that have joined by now."""
    peers, cold = config.peers, config.cold_open
    can = [member.seals for member in view.joined]
    integrity = choose_integrity(peers.integrity, can)
    nodes = tuple(
        Node(name, _capacity(member, packed) if _takes_part(member, integrity) else 0)
        for name, member in zip(names, view.members, strict=True)
    )
    digest = catalog_digest([one.mapped() for one in indexed])
    large = large_above(native.ColdMode[cold.mode.upper()], cold.wait_max)
    mode, copies = Mode(peers.mode), peers.copies
    return JobSpec(nodes, mode, digest, integrity, large, packed, copies)


def _capacity(member: Member, packed: Sequence[TierCodec]) -> int:
    """Return the capacity of a node's Tiers as if all were packed like the first."""
    ratios = {one.tier: one.ratio for one in packed}
    first = ratios.get(0, 1.0)
    sizes = enumerate(member.capacities)
    return int(sum(size * ratios.get(tier, 1.0) / first for tier, size in sizes))


def pool_need(size_bytes: int) -> int:
    """Return the Pool size that a File needs: four times the File, or its Extent."""
    return _POOL_PARTS * min(footprint(size_bytes), native.CONSTANTS["EXTENT_BYTES"])


def packed_footprints(
    sizes: Bytes, units: Units, packed: Sequence[TierCodec], pool_bytes: int
) -> Bytes:
    """Return the expected footprint of each File in the first Tier.

    A File is stored plain if the Pool cannot hold four of it, or four Extents of a
    large File, and if it is longer than an Extent but not placed by Extents.
    """
    extent = native.CONSTANTS["EXTENT_BYTES"]
    plain = footprints(sizes)
    first = (one for one in packed if not one.tier and one.codec != PLAIN)
    ratio = next((one.ratio for one in first), None)
    if ratio is None:
        return plain
    frames = np.where(units.is_large, np.diff(units.first), 1).astype(np.uint64)
    found: Bytes = (sizes / ratio).astype(np.uint64) + frames * np.uint64(FRAME_BYTES)
    fits = np.where(units.is_large, extent, plain) <= pool_bytes // _POOL_PARTS
    needs: Bytes = np.where(fits & (units.is_large | (sizes <= extent)), found, plain)
    return needs


def _takes_part(member: Member, integrity: Integrity) -> bool:
    can = member.seals or integrity is Integrity.CHECKSUM
    return can and member.standing is Standing.JOINED


# -- the Catalog of another node ----------------------------------------------------


def datasets_payload(datasets: Sequence[Dataset]) -> list[list[Any]]:
    """Return the datasets of an agent as JSON: they must be the same on all nodes."""
    return [
        [
            dataset.path,
            xxh3_64_hexdigest(json.dumps(asdict(dataset.patterns)).encode()),
        ]
        for dataset in datasets
    ]


@dataclass(frozen=True, slots=True)
class GivenIndexes:
    """The index blocks of another node.

    Attributes:
        provisional: for each, whether its attributes are those of an earlier job.
        node: the name of that node.
    """

    blocks: Sequence[memoryview]
    provisional: Sequence[bool]
    node: str


def indexes_from_blocks(
    datasets: Sequence[Dataset], given: GivenIndexes
) -> list[Indexed]:
    """Return the index of every dataset from the blocks of another node.

    Raises:
        MonarchError: a root is a different directory on that node, or has other files.
    """
    if not len(given.blocks) == len(given.provisional) == len(datasets):
        raise MonarchError(
            f"{len(given.blocks)} index blocks for {len(datasets)} datasets"
        )
    parts = zip(datasets, given.blocks, given.provisional, strict=True)
    return [
        replace(_index_from_block(dataset, block, given.node), provisional=bool(flag))
        for dataset, block, flag in parts
    ]


def _index_from_block(dataset: Dataset, memory: memoryview, node: str) -> Indexed:
    root = open_root(dataset.path)
    bytes_ = np.frombuffer(memory, np.uint8)
    try:
        native.index_check(bytes_)
    except native.BlockError as error:
        raise MonarchError(f"the index of {root} on {node}: {error}") from error
    block = Block(bytes_)
    if int(block.header["root_ino"]) != root.ino:
        raise MonarchError(f"{root} is a different directory on {node}")
    if not is_same_tree(block, root):
        raise MonarchError(f"{root} has different files on {node}")
    relocate(block, root)
    index = RootIndex(block, root.path, dataset.patterns)
    return Indexed(dataset, root, index, provisional=False, scanned=False)
