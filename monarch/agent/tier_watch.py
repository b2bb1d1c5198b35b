"""Watches the Tiers of a node, and withdraws one that fails or hangs."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from monarch.agent.setup import Setup
from monarch.background import in_thread, within
from monarch.errors import MonarchError
from monarch.stager import Stager
from monarch.tiers import Tier
from monarch.tiers.probe import FAULTS, Finding, Probe, fault_of

PROBE_EVERY_S: Final = 5.0
ANSWER_S: Final = 10.0
"""A medium under load may take seconds; one that takes longer delays programs."""
SLICES: Final = 10
"""Each is timed by itself: the time while the agent was stopped does not count."""
DOUBTS_MAX: Final = 256
"""How many Replicas wait for a check; programs report the others again."""


def prepare_tiers(setup: Setup, run: Path, warn: Callable[[str], None]) -> Setup:
    """Make the directories of all Tiers; one that fails or hangs is not used.

    Raises:
        MonarchError: a Tier is refused, or none of them works.
    """
    kept = []
    for tier in setup.tiers:
        if reason := _fault(tier, run):
            warn(f"tier {tier.name} is not used: {reason}")
        else:
            kept.append(tier)
    if not kept:
        raise MonarchError("no tier works")
    return replace(setup, tiers=tuple(kept))


def _fault(tier: Tier, run: Path) -> str:
    def prepare() -> str:
        tier.prepare(locked=run)
        with contextlib.closing(Probe(tier.directory)) as probe:
            return fault_of(probe.run)

    try:
        return within(ANSWER_S, prepare)
    except TimeoutError:
        return f"no answer in {ANSWER_S:g} s"
    except (OSError, MonarchError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, OSError) and cause.errno in FAULTS:
            return os.strerror(cause.errno)
        raise


class TierWatch:
    """Probes the Tiers of a Stager, and checks Replicas that programs cannot open.

    Args:
        turn: to be called when something has changed.
    """

    def __init__(self, stager: Stager, turn: Callable[[], None]) -> None:
        self._stager = stager
        self._turn = turn
        self._doubts: dict[int, int] = {}
        self._looking: asyncio.Task[None] | None = None
        self._probing = [
            asyncio.create_task(self._probe(number))
            for number in range(len(stager.storage.tiers))
        ]

    def __repr__(self) -> str:
        return f"<TierWatch {len(self._probing)} tiers, {len(self._doubts)} doubts>"

    def close(self) -> None:
        """Stop watching; a thread that hangs in a call is abandoned."""
        for task in (*self._probing, self._looking):
            if task is not None:
                task.cancel()

    def attend(self) -> None:
        """Begin to check the Replicas that programs could not open."""
        if doubtful := self._stager.losses.take_doubtful():
            room = DOUBTS_MAX - len(self._doubts)
            self._doubts.update([*doubtful.items()][:room])
        if self._doubts and self._looking is None:
            self._looking = asyncio.create_task(self._look())

    async def _probe(self, tier: int) -> None:
        probe = Probe(self._stager.storage.tiers[tier].directory)
        while self._in_service(tier):
            reason = await answer(partial(fault_of, probe.run))
            if reason:
                self._withdraw(tier, reason)
            await asyncio.sleep(PROBE_EVERY_S)

    async def _look(self) -> None:
        try:
            while self._doubts:
                file, tier = self._doubts.popitem()
                if self._in_service(tier):
                    await self._look_for(file, tier)
        finally:
            self._looking = None

    async def _look_for(self, file: int, tier: int) -> None:
        found: list[Finding] = []
        look = partial(self._stager.losses.look_for, file, tier)
        reason = await answer(partial(fault_of, lambda: found.append(look())))
        if reason:
            self._withdraw(tier, reason)
        for finding in found:
            self._stager.note_found(file, tier, finding)

    def _withdraw(self, tier: int, reason: str) -> None:
        self._stager.losses.withdraw(tier, reason)
        self._turn()

    def _in_service(self, tier: int) -> bool:
        return self._stager.storage.in_service(tier)


async def answer(step: Callable[[], str], limit_s: float = ANSWER_S) -> str:
    """Return the text of a step about a medium, or one about its timeout."""
    future = in_thread(step)
    for _ in range(SLICES):
        await asyncio.wait([future], timeout=limit_s / SLICES)
        if future.done():
            return future.result()
    return f"no answer in {limit_s:g} s"
