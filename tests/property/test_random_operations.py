"""Random file operations give the same results with and without Monarch."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from support.programs import Outcome, Runner, consumer, stage

SCRIPT = "random_operations.py"
STEPS = 300
TIERS = {"ram": "ram:64MiB", "ssd": "ssd:64MiB:{}"}


def fresh(runner: Runner, root: Path) -> None:
    """Makes the tree anew at the same place, so that results are comparable."""
    # Some operations leave the root by a link, but not further than its parent.
    shutil.rmtree(root.parent, ignore_errors=True)
    root.mkdir(parents=True)
    runner.plain(consumer(SCRIPT, "make", root)).succeed()


def lines(outcome: Outcome) -> list[str]:
    """The results of the operations."""
    return outcome.succeed().stdout.decode().splitlines()


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["ram", "ssd"])
def test_random_operations_give_the_same_results(
    kind: str, runner: Runner, tmp_path: Path, soak_count: Callable[[int, int], int]
) -> None:
    # An SSD tier here is on the file system of the origin, where copies and links work.
    tier = tmp_path / "tier"
    tier.mkdir()
    runner = replace(runner, tier=TIERS[kind].format(tier))
    root = tmp_path / "parent" / "tree"
    for seed in range(soak_count(6, 200)):
        words = consumer(SCRIPT, str(seed), str(STEPS), root)
        # Half of the seeds race with staging, the others meet staged files.
        first = f"{stage(root)} >/dev/null && " if seed % 2 else ""
        staged_words = ["sh", "-c", f'{first} exec "$@"', "sh", *words]

        fresh(runner, root)
        plain = lines(runner.plain(words))
        fresh(runner, root)
        found = lines(runner.under_monarch(staged_words, roots=[root]))

        pairs = zip(plain, found, strict=True)
        differing = [f"{one} / {two}" for one, two in pairs if one != two]
        assert not differing, f"seed {seed}, first of {len(differing)}: {differing[:3]}"
