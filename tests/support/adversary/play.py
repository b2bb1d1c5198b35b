"""One sequence being played: its open objects, random choices and findings."""

import mmap
import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeVar

from support.adversary import tree, truth
from support.adversary.tree import Ground

T = TypeVar("T")
HOT = 4


class Skipped(Exception):
    """This place cannot carry out the operation; the text states the reason."""


@dataclass(slots=True)
class Held:
    """A descriptor that was opened for reading, and a raw one of the same file."""

    descriptor: int
    raw: int
    name: str
    content: bytes
    # All names that the file had.
    names: tuple[str, ...]

    @property
    def redirected(self) -> bool:
        """It is one of a copy."""
        return truth.raw_fstat(self.descriptor)[4] != truth.raw_fstat(self.raw)[4]

    @property
    def lost(self) -> bool:
        """A name of the file was removed, or leads to another one."""
        ino = truth.raw_fstat(self.raw)[4]
        for name in self.names:
            found = truth.attempt(truth.raw_stat, name, False)
            if isinstance(found, str) or found[4] != ino:
                return True
        return False

    def close(self) -> None:
        """Closes both."""
        os.close(self.descriptor)
        os.close(self.raw)


@dataclass(slots=True)
class Play:
    """The state of one sequence; all choices come from its seed."""

    ground: Ground
    hot: tuple[str, ...]
    inherited: int
    can: frozenset[str]
    # The names that each file has at the start, by its identity.
    names: dict[tuple[int, ...], tuple[str, ...]]
    random: Random = field(default_factory=Random)
    held: dict[int, Held] = field(default_factory=dict)
    children: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    maps: list[mmap.mmap] = field(default_factory=list)
    mounts: list[str] = field(default_factory=list)
    # Descriptors whose closing ends a child, and the child.
    twins: list[Path] = field(default_factory=list)
    # Files to which the surviving children write.
    kept: dict[int, int] = field(default_factory=dict)
    ends: list[tuple[int, int]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    lost: bool = False
    # The contents of every name before the part of a step that may be refused.
    middle: dict[str, str] | None = None
    # Names that have become different links.
    moved: list[str] = field(default_factory=list)

    def say(self, word: T) -> T:
        """Notes a drawn value, so that the sequence can be read."""
        self.words.append(str(word).replace(str(self.ground.base), "BASE"))
        return word

    def pick(self, choices: Sequence[T]) -> T:
        """One of some values, noted."""
        return self.say(self.random.choice(choices))

    def way(self, ways: Sequence[Callable[..., T]]) -> Callable[..., T]:
        """One of some functions, noted by its name."""
        chosen = self.random.choice(ways)
        self.say(chosen.__name__)
        return chosen

    def need(self, feature: str) -> None:
        """Skips the operation where the place lacks a feature."""
        if feature not in self.can:
            raise Skipped(feature)

    def name(self, names: Sequence[str] = ()) -> str:
        """A name below the first root; some names are drawn more often."""
        if not names and self.random.random() < 0.6:
            names = self.hot
        return self.random.choice(names or tree.ALL)

    def at(self, name: str) -> str:
        """The plain absolute path of a name."""
        return os.path.normpath(os.path.join(self.ground.main, name))

    def path(self, names: Sequence[str] = ()) -> str:
        """One of many spellings of a random name, noted."""
        name = self.name(names)
        main, base = str(self.ground.main), str(self.ground.base)
        spellings = (
            *(f"{main}/{name}", f"{main}/{name}", name, name, f"./{name}"),
            *(f"a/../{name}", f"{main}//{name}", f"{main}/b/./../{name}"),
            *(f"/proc/self/cwd/{name}", f"/proc/self/root{main}/{name}"),
            *(f"{base}/alias/{name}", f"/proc/thread-self/cwd/{name}"),
            *(f"../main/{name}", f"//{main}/{name}", f"{base}/alias/../main/{name}"),
            *(f"{base}/out/../main/{name}", f"{base}/out/dir/../{name}"),
            *(f"cur/../{name}", f"outd/../{name}", f"f0/../{name}", f"{name}/."),
            *(f"{name}/", f"newdir/../{name}", f"{base}/nowhere/../main/{name}"),
        )
        return self.say(self.random.choice(spellings))

    def payload(self) -> bytes:
        """Bytes to write."""
        return self.random.randbytes(self.random.choice((1, 40, 700, 4096, 5000)))

    def look(self, compare: bool) -> dict[str, str]:
        """What every name shows; `compare`: what a program is shown must be that."""
        state = {}
        for name in tree.ALL:
            path = f"{self.ground.main}/{name}"
            true = truth.look_raw(path)
            state[name] = true.told(path).replace(str(self.ground.base), "BASE")
            if compare:
                shown = truth.look_shim(path, true)
                self.wrong += truth.differences(name, true, shown)
        return state

    def some_held(self) -> Held:
        """One of the descriptors that were opened before; noted."""
        if not self.held:
            OPERATIONS["hold"].run(self)
        slots = sorted(self.held)
        if not slots:
            raise LookupError("nothing held")
        held = self.held[self.random.choice(slots)]
        self.say(held.name)
        self.lost = self.lost or held.lost
        return held

    def end(self) -> None:
        """Releases everything."""
        for view in self.maps:
            view.close()
        for child in self.children:
            child.kill()
            child.communicate()
        for descriptor in self.kept.values():
            os.close(descriptor)
        for held in self.held.values():
            held.close()
        for place in reversed(self.mounts):
            truth.LIBC.umount2(os.fsencode(place), 2)


Operation = Callable[[Play], str]


@dataclass(frozen=True, slots=True)
class Entry:
    """An operation in the list of all."""

    run: Operation
    topic: str
    weight: int


OPERATIONS: dict[str, Entry] = {}


def operation(topic: str, weight: int = 2) -> Callable[[Operation], Operation]:
    """Adds a function to the list of operations."""

    def add(function: Operation) -> Operation:
        OPERATIONS[function.__name__] = Entry(function, topic, weight)
        return function

    return add
