"""Replicas that outlive their job: retained by one job, claimed by a later one."""

import hashlib
import math
import os
import shutil
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from monarch.atomic_file import whole_file
from monarch.tiers.directory_lock import open_private, remove_tree

RETAINED: Final = "retained-"
MANIFEST: Final = "manifest.npz"
SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """The Replicas of a retained Tier; the name of each is the digest of its identity.

    Args:
        names: 32 bytes each.
        first: where each Replica's Extent digests start; one more at the end.
        expires_s: seconds since the epoch, or infinity.
    """

    names: npt.NDArray[np.bytes_]
    sizes: npt.NDArray[np.uint64]
    first: npt.NDArray[np.uint64]
    digests: npt.NDArray[np.uint64]
    expires_s: float = math.inf


def namespace_digest(roots: Iterable[bytes]) -> str:
    """Return the name of the Tiers of all jobs over these roots."""
    return hashlib.blake2b(b"\0".join(sorted(roots)), digest_size=8).hexdigest()


def retain_directory(
    directory: Path, home: Path, digest: str, manifest: Manifest
) -> None:
    """Retain the directory of a Tier, with the Replicas of the manifest only.

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
            )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    return manifest if _is_consistent(manifest) else None


def _is_consistent(manifest: Manifest) -> bool:
    count, first = len(manifest.names), manifest.first
    if len(manifest.sizes) != count or len(first) != count + 1:
        return False
    ordered = bool(np.all(first[1:] > first[:-1]))
    return ordered and first[0] == 0 and int(first[-1]) == len(manifest.digests)


def _write(path: Path, manifest: Manifest) -> None:
    """Write the manifest: existence means complete."""
    with whole_file(path, mode=0o600) as file:
        np.savez(
            file,
            schema=SCHEMA,
            names=manifest.names,
            sizes=manifest.sizes,
            first=manifest.first,
            digests=manifest.digests,
            expires_s=manifest.expires_s,
        )


def _names(manifest: Manifest) -> frozenset[str]:
    return frozenset(os.fsdecode(name) for name in manifest.names.tolist())


def _remove(entry: os.DirEntry[str]) -> None:
    if entry.is_dir(follow_symlinks=False):
        shutil.rmtree(entry.path, ignore_errors=True)
    else:
        os.unlink(entry.path)
