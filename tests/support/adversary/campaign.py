"""A campaign: many seeds, batch by batch, with failures minimised."""

from collections.abc import Iterable, Iterator
from itertools import groupby

from support.adversary.scene import Scene, minimised
from support.adversary.sequences import BATCH, Failure, sequence


def campaign(scene: Scene, seeds: Iterable[int], small: bool) -> Iterator[Failure]:
    """Plays all seeds and returns the failures; `small`: minimised."""
    for _, batch in groupby(seeds, key=lambda seed: seed // BATCH):
        for failure in scene.play([sequence(seed) for seed in batch]):
            if failure:
                yield minimised(scene, failure) if small else failure
