"""After any operation on a staged tree, every name shows the kernel's view."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.adversary.campaign import campaign
from support.adversary.play import OPERATIONS
from support.adversary.scene import Scene, minimised
from support.adversary.sequences import Steps
from support.adversary.tree import clear_abroad

SHOWN_MAX = 3
# Copies must serve most opens of one sequence, or this proves nothing.
REDIRECTED_MIN = 50
AGAIN = "again: PYTHONPATH=tests .venv/bin/python -m support.adversary -s SEED"
# Operations that only some places allow, and one that shows each.
SPECIAL = {
    "root": "change_folder",
    "handles": "write",
    "mounts": "cover",
    "twins": "read_twins",
}


@pytest.fixture
def scene(monarch_command: Path, run_root: Path, tmp_path: Path) -> Iterator[Scene]:
    yield Scene.make(monarch_command, tmp_path)
    clear_abroad(tmp_path)


@pytest.mark.parametrize("feature", SPECIAL)
def test_privileged_steps_are_carried_out_where_permitted(
    scene: Scene, feature: str
) -> None:
    if lack := scene.lacks[feature]:
        pytest.skip(f"{feature}: {lack}")
    name = SPECIAL[feature]
    steps = Steps(seed=0, steps=tuple((name, seed) for seed in range(40)))

    scene.play([steps])

    assert scene.results[f"{name} well"] > 1
    assert not [kind for kind in scene.results if kind.startswith("skipped")]


def test_an_unseen_write_is_found_and_minimised(scene: Scene) -> None:
    # A raw system call writes, which Monarch cannot see: a fault must look like this.
    steps = [("read_link", 1), ("write_unseen", 2), ("read_link", 3)]

    [failure] = scene.play([Steps(seed=0, steps=tuple(steps))])

    assert failure is not None
    assert any(why.startswith("bytes of f0:") for why in failure.why)
    assert minimised(scene, failure).steps.steps == (("write_unseen", 2),)


def seeds(count: int) -> range:
    """The sequences to play: where two users share them, each plays every other one.

    `scripts/test --soak` lets root play the first half and an ordinary user the second.
    """
    if not os.environ.get("MONARCH_TEST_HALVES"):
        return range(count)
    return range(int(os.geteuid() != 0), count, 2)


def lacking(scene: Scene) -> list[str]:
    """The operations that were never carried out to their end."""
    left_out = {one for one, lack in scene.lacks.items() if lack}
    return [
        name
        for name, one in OPERATIONS.items()
        if one.weight and one.topic not in left_out
        if not scene.results.get(f"{name} well")
    ]


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_every_name_shows_what_the_kernel_shows(
    scene: Scene, soak_count: Callable[[int, int], int]
) -> None:
    chosen = seeds(soak_count(600, 12_000))
    count = len(chosen)

    failures = list(campaign(scene, chosen, small=False))

    print(scene.told())
    told = [str(minimised(scene, one)) for one in failures[:SHOWN_MAX]]
    summary = f"{len(failures)} of {count} sequences failed; {AGAIN}"
    assert not failures, "\n".join([summary, *told])
    assert scene.redirected > REDIRECTED_MIN * count
    assert lacking(scene) == []
