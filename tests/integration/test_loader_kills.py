"""Ranks and readers of a loader are killed at random: no Record is lost."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
import pytest

from monarch.loader import Loader
from support.loader_kills import (
    EPOCHS,
    GLOBAL_BATCH,
    LIMIT_S,
    OPTIONS,
    READERS_GO_S,
    WORLDS,
    Member,
    Zygote,
    zygote,
)
from support.loaders import numbered, write_tfrecord
from support.processes import kill, wait_until

COUNT: Final = 1009
TIGHT_MEMORY: Final = {"group": 600_000, "none": 600_000, "global": 1_000_000}
KILLS_MAX: Final = 3
"""Of one start: a reader that is killed more often in a row is given up."""

Batches = list[list[int]]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Zygote]:
    with zygote(tmp_path) as one:
        yield one


@pytest.fixture(params=["tfrecord", "hdf5"])
def packed(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Records that are read in place, and some that are decoded."""
    if request.param == "tfrecord":
        return str(write_tfrecord(tmp_path / "some.tfrecord", numbered(COUNT)))
    rows = np.random.default_rng(1).integers(0, 256, (COUNT, 1000), np.uint8)
    rows[:, :8] = np.arange(COUNT, dtype="<u8")[:, None].view(np.uint8)
    with h5py.File(tmp_path / "some.h5", "w") as file:
        file.create_dataset("rows", data=rows, chunks=(20, 1000), compression="gzip")
    return f"{tmp_path / 'some.h5'}::/rows"


def uninterrupted(packed: str, **options: Any) -> Batches:
    """The global batches of all epochs, by one rank that is not killed."""
    with Loader(packed, GLOBAL_BATCH, **{**OPTIONS, **options}) as loader:
        return [batch.ids.tolist() for _ in range(EPOCHS) for batch in loader]


class Killing:
    """One job that is killed and started again until it has had all batches."""

    def __init__(self, started: Zygote, packed: str, rng: random.Random) -> None:
        self.kills = 0
        self._zygote = started
        self._packed = packed
        self._rng = rng
        shuffle = rng.choice(["group", "group", "global", "none"])
        self._options: dict[str, Any] = {
            "shuffle": shuffle,
            "in_order": rng.random() < 0.8,
            "seed": rng.randrange(3),
            "memory_limit": rng.choice([None, TIGHT_MEMORY[shuffle]]),
            "pause_max_s": rng.choice([0, 0.004, 0.01]),
        }
        self._world = rng.choice(WORLDS)
        self._states: list[Any] = [None]
        self._given: list[Batches] = []

    def play(self) -> None:
        """Start it until it reaches its end."""
        while not self._has_played_once():
            pass
        given = [list(chain(*parts)) for parts in self._given]
        order = {name: self._options[name] for name in ("shuffle", "seed")}
        wanted = uninterrupted(self._packed, **order)
        if self._options["in_order"]:
            assert given == wanted
        half = len(wanted) // EPOCHS
        for first in range(0, len(wanted), half):
            assert sorted(chain(*given[first : first + half])) == list(range(COUNT))
        wait_until(lambda: not self._zygote.readers(), "end of readers", READERS_GO_S)

    def _has_played_once(self) -> bool:
        """Start all ranks, and kill some; return whether they reached the end."""
        if self._options["in_order"]:  # otherwise states need the same rank count
            self._world = self._rng.choice(WORLDS)
        members = self._zygote.job(
            self._packed, self._states, self._world, **self._options
        )
        must_stop = False
        for _ in range(self._rng.choice([1, 1, 2, KILLS_MAX])):
            must_stop |= self._kills_a_rank(members)
        wait_until(
            lambda: must_stop or not any(one.runs for one in members),
            f"end of a job with {self._options}",
            LIMIT_S,
        )
        for one in members:
            kill(one.pid)
        wait_until(lambda: not any(one.runs for one in members), "end of ranks")
        errors = "".join(one.errors() for one in members)
        assert not errors, f"{self._options}: {errors}"
        self._keep([one.said() for one in members])
        return all(one.has_ended_well for one in members)

    def _kills_a_rank(self, members: Sequence[Member]) -> bool:
        """Kill a member at a moment; return whether it was a rank."""
        if self._rng.random() < 0.3:
            time.sleep(self._rng.uniform(0, 0.5))
        else:
            told, more = said(members), self._rng.randrange(120)
            wait_until(
                lambda: said(members) >= told + more or not all_run(members),
                f"batches of a job with {self._options}",
                LIMIT_S,
            )
            time.sleep(self._rng.uniform(0, 0.01))
        of_ranks = [one.pid for one in members if one.runs]
        victims = [*of_ranks, *self._zygote.readers()]
        if not victims:
            return False
        victim = self._rng.choice(victims)
        kill(victim)
        self.kills += 1
        return victim in of_ranks

    def _keep(self, told: Sequence[list[Any]]) -> None:
        """Go on, as from a checkpoint, after the last batch that all ranks have had."""
        upto = min(len(one) for one in told)
        if not upto:
            return
        self._given += [[one[n][0] for one in told] for n in range(upto)]
        self._states = [one[upto - 1][1] for one in told]
        if self._options["in_order"]:
            assert len({str({**one, "rank": 0}) for one in self._states}) == 1


def said(members: Sequence[Member]) -> int:
    """How many batches all ranks have had."""
    return sum(len(one.said()) for one in members)


def all_run(members: Sequence[Member]) -> bool:
    return all(one.runs for one in members)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("half", [0, 1])
def test_no_kill_loses_or_repeats_a_record(
    started: Zygote, packed: str, half: int, soak_count: Callable[[int, int], int]
) -> None:
    kills = 0
    for number in count():
        job = Killing(started, packed, random.Random(f"{half} {packed[-4:]} {number}"))
        job.play()
        kills += job.kills
        if kills >= soak_count(13, 250):
            break
    assert started.leftovers() == []
