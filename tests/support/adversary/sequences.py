"""Sequences of operations made from seeds, and the comparison of two runs."""

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from support.adversary import tree
from support.adversary.act import TOPICS
from support.adversary.play import OPERATIONS

assert TOPICS
# How often a sequence is about one topic; operations of all others occur in between.
THEMES = {
    "links": 6,
    "descriptors": 6,
    "inherited": 3,
    "children": 3,
    "folders": 3,
    "bytes": 3,
    "names": 3,
    "listings": 4,
    "attributes": 2,
    "mounts": 2,
    "twins": 1,
}
THEME_SHARE = 0.75
FEWEST, MOST = 6, 14
# One sequence in so many is a long walk through all operations.
WALK_EVERY, WALK_STEPS = 50, 100
# The action of opens of unstaged files, by the batch.
MODES = ("wait", "wait", "wait", "auto", "through")
HOT_NAMES = 4
INHERITED = (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND)
BATCH = 24

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Steps:
    """One sequence; what is drawn by a step depends on its own seed only."""

    seed: int
    steps: tuple[tuple[str, int], ...]

    @property
    def cold(self) -> bool:
        """Nothing is staged when it starts."""
        return self.seed % 4 == 3

    @property
    def fill(self) -> bool:
        """Files are staged in the background as well; the same for a whole batch."""
        return self.seed // BATCH % 2 == 0

    @property
    def disk(self) -> bool:
        """The copies are on a disk; the same for a whole batch."""
        return self.seed // BATCH % 4 == 1

    @property
    def settled(self) -> bool:
        """Directories have not changed for a while when they are scanned; as above."""
        return self.seed // BATCH % 3 != 2

    @property
    def mode(self) -> str:
        """The mode of cold opens; the same for a whole batch."""
        return MODES[self.seed // BATCH % len(MODES)]

    @property
    def observed(self) -> bool:
        """A process that was there from the start looks as well."""
        return self.seed % 3 == 0

    @property
    def inherited(self) -> int:
        """How its file is opened before the program starts."""
        return INHERITED[self.seed % len(INHERITED)]

    @property
    def hot(self) -> tuple[str, ...]:
        """The names that it uses most."""
        choose = random.Random(f"hot {self.seed}")
        return tuple(choose.sample((*tree.CATALOGUED, *tree.LINKS), HOT_NAMES))

    def without(self) -> "Iterator[Steps]":
        """The same with one step less, each in turn."""
        for gone in range(len(self.steps)):
            left = self.steps[:gone] + self.steps[gone + 1 :]
            yield replace(self, steps=left)

    def upto(self, step: int) -> "Steps":
        """The steps up to this one."""
        return replace(self, steps=self.steps[: step + 1])


def sequence(seed: int) -> Steps:
    """The sequence of a seed."""
    choose = random.Random(seed)
    theme = choose.choices(tuple(THEMES), tuple(THEMES.values()))[0]
    themed = [name for name, one in OPERATIONS.items() if one.topic == theme]
    walk = seed % WALK_EVERY == WALK_EVERY - 1
    share, count = THEME_SHARE, choose.randrange(FEWEST, MOST + 1)
    share, count = (0.0, WALK_STEPS) if walk else (share, count)
    names = []
    for _ in range(count):
        pool = themed if choose.random() < share else tuple(OPERATIONS)
        weights = [OPERATIONS[name].weight for name in pool]
        names.append(choose.choices(pool, weights)[0])
    return Steps(seed, tuple((name, choose.getrandbits(32)) for name in names))


@dataclass(frozen=True, slots=True)
class Failure:
    """The place and the kind of a sequence's failure."""

    steps: Steps
    step: int
    why: tuple[str, ...]
    trace: tuple[str, ...]

    @property
    def kind(self) -> str:
        """The operation that failed."""
        return self.steps.steps[self.step][0] if self.step >= 0 else "start"

    def __str__(self) -> str:
        told = "\n    ".join(self.trace)
        why = "\n    ".join(self.why[:6])
        heading = "wrong (the right value first):"
        return f"seed {self.steps.seed}:\n    {told}\n  {heading}\n    {why}"


def judge(steps: Steps, plain: Sequence[Line], found: Sequence[Line]) -> Failure | None:
    """The first failure of a run under Monarch, compared with a plain one."""
    trace: list[str] = []
    before: Line = {}
    deviated = False
    for number in range(len(steps.steps) + 1):
        if number >= len(plain):
            early = ("the program ended here without Monarch, too",)
            return Failure(steps, number - 1, early, tuple(trace))
        if number >= len(found):
            trace.append(told_step(plain[number]))
            return Failure(steps, number - 1, ("the program ended here",), tuple(trace))
        one, two = plain[number], found[number]
        trace.append(told_step(two))
        why = list(two["wrong"])
        if one["wrong"]:
            why.append(f"wrong without Monarch: {one['wrong']}")
        if not deviated and (apart := compare(one, two)):
            deviated = refused(two, before)
            why += [] if deviated else apart
        if why:
            return Failure(steps, number - 1, tuple(why), tuple(trace))
        before = two
    return None


def refused(line: Line, before: Line) -> bool:
    """A file whose name is lost may not be reached by a descriptor; nothing changes."""
    unchanged = bool(line["state"] == (line["middle"] or before.get("state")))
    return bool(line["lost"]) and line["result"].startswith("E") and unchanged


def compare(one: Line, two: Line) -> list[str]:
    """The differences of two lines of the same step."""
    pairs = [(what, one[what], two[what]) for what in ("words", "result")]
    for name, state in one["state"].items():
        pairs.append((f"state of {name}", state, two["state"][name]))
    return [f"{what}: {a!r} {b!r}" for what, a, b in pairs if a != b]


def told_step(line: Line) -> str:
    """A step in words."""
    return f"{line['op']} {' '.join(line['words'])} = {line['result']}"
