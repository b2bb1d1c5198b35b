"""Whether datasets and Tiers keep out of each other's way."""

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from monarch.errors import UsageError
from monarch.tiers.directory_lock import lack_of_directory
from monarch.tiers.tier import Tier


def check_places(roots: Mapping[str, Path], tiers: Sequence[Tier]) -> None:
    """Refuse Tiers inside datasets, datasets inside Tiers, and Tiers in one place.

    Args:
        roots: the datasets by configuration key.
    """
    for key, root in roots.items():
        _check_root(key, root)
    places: dict[Path, Tier] = {}
    for tier in tiers:
        tier.check_path()
        settings, place = tier.settings, tier.settings.path.resolve()
        if place in places:
            raise UsageError(
                f"{settings.key}.path: {settings.path} is the place of tier "
                f"{places[place].name!r} already; give each tier its own directory"
            )
        places[place] = tier
        for key, root in roots.items():
            _check_apart(tier, key, root)


def _check_root(key: str, root: Path) -> None:
    if lack := lack_of_directory(root):
        raise UsageError(f"{key}: {root} {lack}; name the dataset's directory")
    if not os.access(root, os.R_OK | os.X_OK):
        raise UsageError(f"{key}: {root} cannot be read by this user")


def _check_apart(tier: Tier, key: str, root: Path) -> None:
    dataset, settings = root.resolve(), tier.settings
    if settings.path.resolve().is_relative_to(dataset):
        raise UsageError(
            f"{settings.key}.path: {settings.path} is inside the dataset {root}; "
            "choose a directory outside"
        )
    own = tier.home if _is_shared(settings.path) else settings.path
    if dataset.is_relative_to(own.resolve()):
        raise UsageError(
            f"{key}: {root} is inside tier {tier.name!r} ({own}); "
            "choose another path for one of them"
        )


def _is_shared(path: Path) -> bool:
    """A mount point or a sticky directory, such as /dev/shm, may hold both."""
    return os.path.ismount(path) or bool(path.stat().st_mode & stat.S_ISVTX)
