"""Random operations on large files that fill, played plain and under Monarch.

Also a program: `python -m support.large_files FIRST [LAST] [WAY]` plays sequences again
and prints what differs; `tests/native/large/play.c` tells what the lines say.
"""

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

from support import compiler, countfs, processes
from support.countfs import CountFs
from support.processes import wait_until
from support.programs import Outcome, Runner, finish, start

SOURCES = Path(__file__).parents[1] / "native" / "large"
PLAY = (
    *("play", "drawing", "opens", "reads", "faults", "changes", "forks", "signals"),
)
# A Block is 256 KiB, an Extent 8 MiB: some sizes are multiples, some not even of words.
SIZES = (
    *(9 << 20, 10_000_003, 12 << 20, 16 << 20, 20_000_008),
    *(9_700_000, 40 << 20, 13_000_013, 30_000_000),
)
BATCH = 50
BYTES_PER_S, FAST, SLOW = 100_000_000, 400_000_000, 60_000_000
SLOW_FILL = ("--set", "fill.bandwidth=20MB/s")
PACKED = ("--set", "tiers[0].codec=lz4", "--set", "peers.transit=40MiB")
LIMIT_S = 200
CONTEXT_LINES = 12


def build(name: str, *stems: str) -> Path:
    """One of the programs of tests/native/large."""
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", *compiler.WARNINGS]
    sources = [SOURCES / f"{stem}.c" for stem in stems or (name,)]
    return compiler.build(name, "cc", *flags, *sources, "-pthread")


@dataclass(frozen=True, slots=True)
class Way:
    """How one batch is played under Monarch."""

    tier: str = "ram:512MiB"
    options: tuple[str, ...] = ()
    bytes_per_s: int = BYTES_PER_S
    # On disks reads by O_DIRECT must be aligned, and offsets end at 16 TiB.
    medium: str = "memory"


WAYS = {
    "default": Way(),
    "slow-fill": Way(options=SLOW_FILL, bytes_per_s=FAST),
    "demand": Way(options=("--set", "fill.enabled=false"), bytes_per_s=FAST),
    "no-room": Way(tier="ram:48MiB"),
    "disk": Way("ssd:512MiB:{folder}", medium="disk"),
    "soon-whole": Way(bytes_per_s=0),
    "packed": Way(options=PACKED, bytes_per_s=FAST),
}


@dataclass(frozen=True, slots=True)
class Difference:
    """The first line of a sequence that was not the same."""

    way: str
    sequence: int
    plain: str
    found: str
    before: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"sequence {self.sequence}, {self.way}:", *self.before]
        return "\n".join([*lines, f"- {self.plain}", f"+ {self.found}"])


@dataclass(slots=True)
class Campaign:
    """Large files at a throttled origin, and the operations played on them."""

    runner: Runner
    origin: CountFs
    # Bytes read by agents, and opens answered by Tiers.
    agent_bytes: int = 0
    redirected: int = 0
    operations: Counter[str] = field(default_factory=Counter)

    def play_hurt(
        self, seeds: Sequence[int], way: str, hurt: Callable[[], None]
    ) -> list[Difference]:
        """Play seeds in a job that is hurt meanwhile, at a slow origin, and compare."""
        plain, words = self.plain(seeds, way), self.words(seeds, way)
        self.make(SLOW)
        runner, report = self._runner(WAYS[way]), self.runner.folder / "report.json"
        line = runner.line([self.origin.root], report, WAYS[way].options)
        process = start([*line, *words])
        wait_until(self._begun(words), "the start of the program")
        hurt()
        outcome = finish(process, LIMIT_S)
        return list(compared(plain, outcome.stdout.decode().splitlines(), way))

    def play(self, seeds: Sequence[int], way: str) -> list[Difference]:
        """Play consecutive seeds, plain and in one job, and compare."""
        plain = self.plain(seeds, way)
        outcome = self._under_monarch(self.words(seeds, way), WAYS[way])
        found = outcome.stdout.decode().splitlines()
        differences = list(compared(plain, found, way))
        if not differences:
            outcome.succeed()
        return differences

    def share(self, way: str) -> Outcome:
        """Let threads of two processes read all files, each by one offset."""
        paths = [str(self.origin.root / name_of(i)) for i in range(len(SIZES))]
        return self._under_monarch([str(build("share")), *paths], WAYS[way])

    def swap(self, way: str, seconds: int) -> Outcome:
        """Let threads read by a number that two files have in turn."""
        paths = [str(self.origin.root / name_of(number)) for number in (0, 6)]
        words = [str(build("swap")), str(seconds), *paths]
        return self._under_monarch(words, WAYS[way])

    def words(self, seeds: Sequence[int], way: str) -> list[str]:
        """The command that plays seeds."""
        program = str(build("play", *PLAY))
        numbers = [str(seeds[0]), str(seeds[-1]), *map(str, SIZES)]
        return [program, WAYS[way].medium, str(self.origin.root), *numbers]

    def make(self, bytes_per_s: int = 0) -> None:
        """Restore files changed by an earlier run, and set the pace of the origin."""
        words = [str(build("play", *PLAY)), "make", str(self.origin.source)]
        self.runner.plain([*words, *map(str, SIZES)]).succeed()
        self.origin.set(bw=bytes_per_s)

    def plain(self, seeds: Sequence[int], way: str) -> list[str]:
        """The lines of seeds without Monarch; all must be as the model says."""
        self.make()
        outcome = self.runner.plain(self.words(seeds, way)).succeed()
        lines = outcome.stdout.decode().splitlines()
        wrong = [line for line in lines if "WRONG" in line]
        assert not wrong, f"the model does not hold without Monarch: {wrong}"
        names = (line.removeprefix("  child").split()[0] for line in lines)
        self.operations.update(names)
        return lines

    def _begun(self, words: list[str]) -> Callable[[], bool]:
        """Whether a command runs by itself, not as words of a launcher."""
        return lambda: words in processes.marked(self.origin.root).values()

    def _runner(self, how: Way) -> Runner:
        folder = self.runner.folder / "tier"
        folder.mkdir(exist_ok=True)
        return replace(self.runner, tier=how.tier.format(folder=folder))

    def _under_monarch(self, words: list[str], how: Way) -> Outcome:
        self.make(how.bytes_per_s)
        outcome = self._runner(how).under_monarch(
            words, roots=[self.origin.root], options=how.options, timeout=LIMIT_S
        )
        self.agent_bytes += outcome.origin_bytes
        self.redirected += outcome.redirected_opens
        return outcome


def name_of(number: int) -> str:
    """The name of a file."""
    return f"f{number:02}"


def sequences(lines: Sequence[str]) -> list[list[str]]:
    """The lines of each sequence."""
    found: list[list[str]] = []
    for line in lines:
        if line.startswith("sequence "):
            found.append([])
        found[-1].append(line)
    return found


def compared(
    plain: Sequence[str], found: Sequence[str], way: str
) -> Iterator[Difference]:
    """The first difference of each sequence; what one has changed others may show."""
    pairs = zip_longest(sequences(plain), sequences(found), fillvalue=["nothing"])
    for one, other in pairs:
        lines = list(zip_longest(one, other, fillvalue="nothing"))
        for number, (expected, line) in enumerate(lines):
            if expected != line:
                before = one[max(number - CONTEXT_LINES, 0) : number]
                sequence = int(one[0].split()[1])
                yield Difference(way, sequence, expected, line, tuple(before))
                break


def batches(count: int) -> Iterator[tuple[range, str]]:
    """The seeds of each job, and how it is played."""
    ways = list(WAYS)
    for number, first in enumerate(range(0, count, BATCH)):
        yield range(first, min(first + BATCH, count)), ways[number % len(ways)]


@contextmanager
def campaign(runner: Runner, program: Path) -> Iterator[Campaign]:
    """Files in memory, at an origin that lasts as long as the block."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="monarch-test-") as base:
        source, root = Path(base) / "source", Path(base) / "origin"
        source.mkdir()
        root.mkdir()
        with countfs.mounted(program, source, root, writable=1) as origin:
            yield Campaign(runner, origin)


def main(words: list[str]) -> int:
    """Play seeds again; 1 if something differed."""
    numbers = [int(word) for word in words if word.isdigit()]
    ways = [word for word in words if word in WAYS] or ["default"]
    command = Path(sys.executable).with_name("monarch")
    seeds = range(numbers[0], numbers[-1] + 1)
    with tempfile.TemporaryDirectory(prefix="large-") as folder:
        os.environ["MONARCH_STAGING_RUN_DIR"] = folder
        runner = Runner(command, Path(folder))
        with campaign(runner, countfs.build()) as played:
            found = [one for way in ways for one in played.play(seeds, way)]
    print(*found, sep="\n")
    print(f"{len(seeds)} sequences {len(ways)} times, {len(found)} differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
