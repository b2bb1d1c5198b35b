"""Replicas that outlive their job: retained by one job, claimed by a later one."""

import contextlib
import hashlib
import json
import math
import os
import shutil
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from monarch.atomic_file import whole_file
from monarch.tiers.directory_lock import is_private, open_private, remove_tree
from monarch.tiers.packed import Packs

RETAINED: Final = "retained-"
MANIFEST: Final = "manifest.npz"
SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Origins:
    """The datasets that a retained Tier holds Replicas of, for `monarch list`.

    Args:
        roots: the datasets, by their realpaths.
        tier: the name of the Tier.
        retained_s: when it was retained, in seconds since the epoch.
        catalog: the digest of the Catalog.
        files: the number of Files of the datasets.
        nodes: the number of nodes of the job, which share the Files between them.
        kept_files: the number of Files that this node was to keep, in all its Tiers.
        left_files: the number of Files that were placed on no node, or only in part.
    """

    roots: tuple[str, ...]
    tier: str
    retained_s: float
    catalog: int
    files: int
    nodes: int
    kept_files: int
    left_files: int

    def text(self) -> str:
        """Return this as JSON."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def read(cls, text: str) -> Self:
        """Return an object from JSON.

        Raises:
            ValueError: the JSON is not of this version.
        """
        found = json.loads(text)
        try:
            return cls(**{**found, "roots": tuple(map(str, found["roots"]))})
        except (TypeError, KeyError) as error:
            raise ValueError(f"not of this version: {error}") from error


@dataclass(frozen=True, slots=True)
class Manifest:
    """The Replicas of a retained Tier; the name of each is the digest of its identity.

    Args:
        names: 32 bytes each.
        first: the index of each Replica's first Extent digest, and that of the end.
        expires_s: seconds since the epoch, or infinity.
        origins: the copied datasets; None if retained by older versions.
        packs: the packed Files, beside these; None if the Tier has none.
    """

    names: npt.NDArray[np.bytes_]
    sizes: npt.NDArray[np.uint64]
    first: npt.NDArray[np.uint64]
    digests: npt.NDArray[np.uint64]
    expires_s: float = math.inf
    origins: Origins | None = None
    packs: Packs | None = None

    @property
    def files(self) -> int:
        """The number of retained Files."""
        return len(self.names) + (self.packs.files if self.packs else 0)

    @property
    def size_bytes(self) -> int:
        """The bytes of these Files."""
        packed = self.packs.size_bytes if self.packs else 0
        return int(self.sizes.sum()) + packed

    @property
    def stored_bytes(self) -> int:
        """The bytes that their Replicas take, without rounding to pages."""
        packed = self.packs.stored_bytes if self.packs else 0
        return int(self.sizes.sum()) + packed


def namespace_digest(roots: Iterable[bytes]) -> str:
    """Return the name of the Tiers of all jobs over these roots."""
    return hashlib.blake2b(b"\0".join(sorted(roots)), digest_size=8).hexdigest()


def retain_directory(
    directory: Path, home: Path, digest: str, manifest: Manifest
) -> None:
    """Retain the directory of a Tier, with only the Replicas of the manifest.

    It replaces an older one of the same Namespace.
    """
    known = _names(manifest)
    for entry in os.scandir(directory):
        if entry.name not in known:
            _remove(entry)
    _write(directory / MANIFEST, manifest)
    target = home / f"{RETAINED}{digest}"
    remove_tree(target)
    os.rename(directory, target)


def claim(directory: Path, home: Path, digest: str) -> Manifest | None:
    """Move a retained directory into the place of an empty one; one job succeeds.

    Returns:
        Its manifest; None if there is nothing to adopt.
    """
    try:
        os.rename(home / f"{RETAINED}{digest}", directory)
    except OSError:
        return None
    os.close(open_private(directory))
    manifest = read_manifest(directory)
    known = _names(manifest) if manifest is not None else frozenset()
    for entry in os.scandir(directory):
        if entry.name not in known or not entry.is_file(follow_symlinks=False):
            _remove(entry)
    return manifest


@dataclass(frozen=True, slots=True)
class Retained:
    """The contents of a Tier that a job has retained for later ones.

    Attributes:
        manifest: None if it is damaged: no job adopts anything.
        missing: the number of Replicas, or packed Files, that no longer exist.
        since_s: when it was retained, in seconds since the epoch.
    """

    directory: Path
    manifest: Manifest | None
    missing: int
    since_s: float

    @classmethod
    def at(cls, directory: Path) -> Self:
        """Return the contents of a retained directory.

        Raises:
            OSError: it was removed, or cannot be read.
        """
        manifest = read_manifest(directory)
        there = {entry.name for entry in os.scandir(directory)}
        missing = 0
        if manifest is not None:
            missing = len(_replicas(manifest) - there)
            missing += manifest.packs.missing(directory) if manifest.packs else 0
        origins = manifest.origins if manifest is not None else None
        since_s = origins.retained_s if origins else directory.stat().st_mtime
        return cls(directory, manifest, missing, since_s)

    @property
    def size_bytes(self) -> int:
        """The bytes of all its Files."""
        return 0 if self.manifest is None else self.manifest.size_bytes


def retained_in(home: Path) -> list[Retained]:
    """Return the retained Tiers in the directory of a user's jobs on a medium."""
    if not is_private(home):
        return []
    found = []
    for path in sorted(home.glob(f"{RETAINED}*")):
        with contextlib.suppress(OSError):  # a job has claimed it just now
            found.append(Retained.at(path))
    return found


def has_expired(retained: Path, now_s: float) -> bool:
    """Return whether a retained directory may be removed."""
    manifest = read_manifest(retained)
    return manifest is None or manifest.expires_s <= now_s


def read_manifest(directory: Path) -> Manifest | None:
    """Return the manifest of a directory; None unless it is complete and consistent."""
    try:
        with (
            open(directory / MANIFEST, "rb") as file,
            np.load(file, allow_pickle=False) as held,
        ):
            if int(held["schema"]) != SCHEMA:
                return None
            manifest = Manifest(
                held["names"].astype("S32"),
                held["sizes"].astype(np.uint64),
                held["first"].astype(np.uint64),
                held["digests"].astype(np.uint64),
                float(held["expires_s"]),
                _origins(held),
                _packs(held),
            )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    return manifest if _is_consistent(manifest) else None


def _origins(held: Mapping[str, Any]) -> Origins | None:
    text = str(held["origins"]) if "origins" in held else ""
    return Origins.read(text) if text else None


def _packs(held: Mapping[str, Any]) -> Packs | None:
    text = held["packs"].tobytes().decode() if "packs" in held else ""
    return Packs.read(text) if text else None


def _is_consistent(manifest: Manifest) -> bool:
    count, first = len(manifest.names), manifest.first
    if len(manifest.sizes) != count or len(first) != count + 1:
        return False
    ordered = bool(np.all(first[1:] > first[:-1]))
    return ordered and first[0] == 0 and int(first[-1]) == len(manifest.digests)


def _write(path: Path, manifest: Manifest) -> None:
    """Write the manifest, so that it is complete as soon as it exists."""
    packs = manifest.packs.text() if manifest.packs else ""
    with whole_file(path, mode=0o600) as file:
        np.savez(
            file,
            schema=SCHEMA,
            names=manifest.names,
            sizes=manifest.sizes,
            first=manifest.first,
            digests=manifest.digests,
            expires_s=manifest.expires_s,
            origins=manifest.origins.text() if manifest.origins else "",
            # As bytes, not characters: it contains a dictionary.
            packs=np.frombuffer(packs.encode(), np.uint8),
        )


def _replicas(manifest: Manifest) -> frozenset[str]:
    return frozenset(os.fsdecode(name) for name in manifest.names.tolist())


def _names(manifest: Manifest) -> frozenset[str]:
    """Return the names of all files of a manifest."""
    segments = manifest.packs.segments if manifest.packs else ()
    return _replicas(manifest) | {segment.name for segment in segments}


def _remove(entry: os.DirEntry[str]) -> None:
    if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry.path, ignore_errors=True)
    else:
        os.unlink(entry.path)
