"""By what the nodes of a job know that bytes from each other are right.

Checksums tell what faults have changed; anybody on the network can make them right
again. Seals are MACs by a key that only the job's nodes have. All nodes of a job use
the same: the first one decides, and tells it with the Catalog on connections that
nobody without the secret can alter. Who cannot or may not do the same works alone.
"""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from monarch import native

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
