"""Agents that are killed while they write pack files of a retained Tier: programs
read on, and the next job serves nothing that is not whole.

The medium writes so slowly that the kill falls into frames, copies and indexes.
"""

# ruff: noqa: F811

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from integration.test_hung_parts import medium, tierfs_program  # noqa: F401
from integration.test_packed_jobs import body
from monarch.agent.control import ask
from support.agents import AgentProcess, start_agent
from support.countfs import CountFs
from support.processes import WAIT_S, wait_until

MIB = 1 << 20
SMALL, LONG = 60, 3  # files
FILES = SMALL + LONG
LONG_BYTES = 3 * MIB  # several requests to the medium
SLOW_BYTES_PER_S, COPIED_BYTES_PER_S = 8_000_000, 1_000_000
INDEX_BYTES_PER_S = 20_000
# Reads everything repeatedly, and compares it with the source.
READER = """
import sys, time
from pathlib import Path
root, source, stop = map(Path, sys.argv[1:])
names = sorted(path.name for path in source.iterdir())
while True:
    last = stop.exists()
    for name in names:
        assert (root / name).read_bytes() == (source / name).read_bytes(), name
    if last:
        break
    time.sleep(0.3)  # compaction waits until nothing else runs
"""


@dataclass
class Place:
    """A dataset, a slow medium, and agents that stage it one after the other."""

    view: CountFs
    medium: CountFs
    run_root: Path
    stop: Path
    jobs: int = 0
    agents: list[AgentProcess] = field(default_factory=list)

    def start(self) -> AgentProcess:
        """An agent that retains its packed files."""
        words = ["--data", str(self.view.root)]
        words += ["--tier", f"ssd:256MiB:{self.medium.root}"]
        words += ["--set", "tiers[0].codec=none", "--set", "retain=node"]
        self.jobs += 1
        agent = start_agent(self.run_root / f"job{self.jobs}.n", words)
        self.agents.append(agent)
        agent.listen("ready")
        return agent

    @contextmanager
    def read(self, agent: AgentProcess) -> Iterator[None]:
        """Programs read meanwhile; all bytes are right."""
        self.stop.unlink(missing_ok=True)
        words: list[str | Path] = [sys.executable, "-c", READER]
        words += [self.view.root, self.view.source, self.stop]
        programs = [subprocess.Popen(words, env=agent.environ()) for _ in range(2)]
        try:
            yield
        finally:
            self.stop.touch()
            ends = [program.wait(WAIT_S) for program in programs]
        assert ends == [0, 0]

    def stage(self) -> dict[str, Any]:
        """Read all bytes right in a job that ends in order, and return its report."""
        agent = self.start()
        with self.read(agent):
            agent.await_staged(FILES)
        report: dict[str, Any] = agent.status()["report"]
        assert agent.stop() == 0
        return report

    @property
    def packs(self) -> list[Path]:
        """The pack files of running and killed jobs."""
        return sorted(self.medium.source.glob("monarch-*/job*/*/segment-*.pack"))

    def change(self, rng: random.Random) -> int:
        """Write many files anew, but the long one whose frame is the last, and return
        how many: the frames that an earlier job has of them are dead."""
        small, long = self.files[:SMALL], self.files[SMALL:]
        kept = max(long, key=self.position)
        chosen = rng.sample(small, SMALL // 2) + [one for one in long if one != kept]
        self.write_anew(chosen, rng)
        return len(chosen)

    def write_anew(self, paths: list[Path], rng: random.Random) -> None:
        for path in paths:
            path.write_bytes(body(path.stat().st_size, rng.randrange(1 << 30)))

    def position(self, path: Path) -> int:
        """Where a file is in the only pack file that was retained."""
        [pack] = self.medium.source.glob("monarch-*/retained-*/segment-*.pack")
        return pack.read_bytes().index(path.read_bytes())

    @property
    def files(self) -> list[Path]:
        return sorted(self.view.source.iterdir())


@pytest.fixture
def place(
    mount_counted: Callable[..., CountFs],
    medium: CountFs,
    run_root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    monkeypatch.setenv("MONARCH_STAGING_NODE", "n")
    source, rng = tmp_path / "data", random.Random(1)
    source.mkdir()
    sizes = [rng.randrange(1, 80_000) for _ in range(SMALL)] + [LONG_BYTES] * LONG
    for number, size in enumerate(sizes):
        (source / f"{number:03}").write_bytes(body(size, number))
    made = Place(mount_counted(source), medium, run_root, tmp_path / "stop")
    yield made
    for agent in made.agents:
        agent.kill()


def while_a_segment_is_written(place: Place, rng: random.Random) -> int:
    """Kill the agent in the middle of packing."""
    place.medium.set(wbw=SLOW_BYTES_PER_S)
    agent = place.start()
    with place.read(agent):
        wait_until(lambda: place.packs, "a pack file")
        time.sleep(rng.uniform(0, 1.0))
        staged = agent.status()["report"]["tiers"][0]["files"]
        agent.kill()
    return int(staged < FILES)


def while_a_segment_is_emptied(place: Place, rng: random.Random) -> int:
    """Kill the agent in the middle of a compaction of adopted frames."""
    place.write_anew(place.files, rng)
    place.stage()
    # Dead frames at the end are cut off: two long frames before a surviving long one
    # are more than a quarter of the rest.
    changed = place.change(rng)
    place.medium.set(wbw=SLOW_BYTES_PER_S)
    agent = place.start()
    with place.read(agent):
        agent.await_staged(FILES)
        place.medium.set(wbw=COPIED_BYTES_PER_S)
        figures = agent.await_figure("compacted_bytes", 1)
        time.sleep(rng.uniform(0, 0.5))
        ended = agent.figures()["compacted_segments"]
        agent.kill()
    assert figures["adopted_files"] == FILES - changed
    return int(not ended)


def while_indexes_are_written(place: Place, rng: random.Random) -> int:
    """Kill the agent in the middle of retaining packed files."""
    agent = place.start()
    with place.read(agent):
        agent.await_staged(FILES)
    place.medium.set(wbw=INDEX_BYTES_PER_S)
    ask(agent.run, {"op": "stop"})
    time.sleep(rng.uniform(0, 0.6))
    agent.kill()
    return int(bool(place.packs))  # of a job that did not get that far


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "killed",
    [while_a_segment_is_written, while_a_segment_is_emptied, while_indexes_are_written],
)
def test_killed_agent_leaves_nothing_that_is_not_whole(
    place: Place,
    soak_count: Callable[[int, int], int],
    killed: Callable[[Place, random.Random], int],
) -> None:
    rng, kept, hit = random.Random(killed.__name__), 0, 0
    trials = soak_count(3, 60)
    size_bytes = sum(path.stat().st_size for path in place.files)
    for _ in range(trials):
        hit += killed(place, rng)
        place.medium.set(wbw=0)
        place.view.reset()

        report = place.stage()
        adopted = report["staging"]["adopted_files"]
        read_bytes = place.view.counts().read_bytes
        place.view.reset()
        again = place.stage()

        # Either all retained files are whole, or all were lost, and counted.
        assert adopted in (0, FILES)
        assert report["staging"]["files"] == FILES - adopted
        assert read_bytes >= (0 if adopted else size_bytes)
        assert report["packed"]["dropped_files"] == 0
        assert again["staging"]["adopted_files"] == FILES
        assert again["packed"]["dropped_files"] == 0
        assert place.view.counts().read_bytes == 0
        place.write_anew(rng.sample(place.files, FILES // 2), rng)
        kept += adopted == FILES
    print(f"{killed.__name__}: {trials} trials, {hit} in the middle, {kept} kept")
    # Nothing is kept if it was incomplete or taken over by the killed job.
    assert killed is while_indexes_are_written or (hit > 0 and kept == 0)
