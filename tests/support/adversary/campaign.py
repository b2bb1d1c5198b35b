"""A campaign: many seeds, batch by batch, and the failures made small."""

from collections.abc import Iterable
from itertools import groupby

from support.adversary.scene import Scene, minimised
from support.adversary.sequences import BATCH, Failure, sequence


def campaign(scene: Scene, seeds: Iterable[int], small: bool) -> list[Failure]:
    """Plays all seeds; `small`: failures are minimised."""
    failures = []
    for _, batch in groupby(seeds, key=lambda seed: seed // BATCH):
        found = [one for one in scene.play([sequence(s) for s in batch]) if one]
        failures += [minimised(scene, one) for one in found] if small else found
    return failures
