"""Runs sequences plain and under Monarch in the same places, many in one launch."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.adversary import mounts, sequences
from support.adversary.sequences import Failure, Line, Steps
from support.adversary.tree import Ground, grounds
from support.programs import finish, start

# A scan of so many names takes about as long as the first sequences of a launch.
CROWD = 60_000
SETTLED_S = 2.1
"""After this time without a change a directory may be listed from the Catalog."""
TESTS = Path(__file__).parents[2]
LIMIT_S = 60
SAID_BYTES_MAX = 4000
CRASHES = (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT)
MOUNT_TWINS = 'mount -o ro "$1" "$3"; mount -o ro "$2" "$4"; shift 4; exec "$@"'


def features(folder: Path) -> dict[str, str]:
    """What this place can carry out: the name of each feature and '', or what lacks."""
    lacks = {"root": "", "mounts": "", "twins": "", "handles": ""}
    if os.geteuid() != 0:
        return dict.fromkeys(lacks, "needs root")
    words = ["unshare", "-m", "--propagation", "private", "true"]
    if not shutil.which("unshare") or subprocess.run(words, check=False).returncode:
        lacks["mounts"] = lacks["twins"] = "needs a mount namespace"
    elif not (shutil.which("mkfs.ext4") and shutil.which("debugfs")):
        lacks["twins"] = "needs mkfs.ext4 and debugfs"
    elif not Path("/dev/loop-control").exists():
        lacks["twins"] = "needs loop devices"
    return lacks


@dataclass(slots=True)
class Scene:
    """A place for launches, one after the other."""

    command: Path
    folder: Path
    lacks: dict[str, str]
    twins: list[Path] = field(default_factory=list)
    # A dataset whose scan does not end before the programs start; None: they wait.
    crowd: Path | None = None
    early: int = 0
    redirected: int = 0
    listed: int = 0
    denied: int = 0
    results: dict[str, int] = field(default_factory=dict)

    @classmethod
    def make(cls, command: Path, folder: Path) -> "Scene":
        """Prepares the shared parts of all launches."""
        scene = cls(command, folder, features(folder))
        if not scene.lacks["twins"]:
            (folder / "images").mkdir()
            scene.twins = mounts.make_twins(folder / "images")
            for place in scene.twin_places:
                place.mkdir()
        return scene

    def begin_late(self) -> None:
        """Lets programs start before their datasets are indexed, from now on."""
        self.crowd = self.folder / "crowd"
        for number in range(CROWD):
            path = self.crowd / str(number % 100) / str(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    @property
    def twin_places(self) -> list[Path]:
        """Where the twins are mounted."""
        return (
            [self.folder / "twin-one", self.folder / "twin-two"] if self.twins else []
        )

    def play(self, batch: Sequence[Steps]) -> list[Failure | None]:
        """Plays up to BATCH sequences and judges each."""
        places = grounds(self.folder / "play", len(batch))
        plain = self._run(batch, places, compare=False)
        found = self._run(batch, places, compare=True)
        for lines in found.values():
            self._count(lines)
        # The last sequence may have ended the program: the others continue.
        failures = [
            sequences.judge(batch[number], plain.get(number, []), found.get(number, []))
            for number in range(max(found, default=0) + 1)
        ]
        rest = batch[len(failures) :]
        return [*failures, *(self.play(rest) if rest else [])]

    def told(self) -> str:
        """How often each operation was carried out, refused by the kernel, skipped."""
        kinds = [f"{number:7} {kind}" for kind, number in sorted(self.results.items())]
        opens = [
            f"{self.redirected:7} opens were redirected",
            f"{self.listed:7} directories were listed from the Catalog",
            f"{self.denied:7} names were denied by it",
        ]
        if self.crowd is not None:
            opens.append(f"{self.early:7} opens came before there was a catalog")
        return "\n".join([*kinds, *opens])

    def _count(self, lines: Sequence[Line]) -> None:
        for line in lines:
            well = not line["result"].isupper()
            if line["result"].startswith("skipped"):
                key = line["result"]
            else:
                key = f"{line['op']} {'well' if well else 'refused'}"
            self.results[key] = self.results.get(key, 0) + 1

    def _run(
        self, batch: Sequence[Steps], places: Sequence[Ground], compare: bool
    ) -> dict[int, list[Line]]:
        for steps, place in zip(batch, places, strict=True):
            place.make(steps.seed)
        if compare and batch[0].settled:
            time.sleep(SETTLED_S)
        with self._inherited(batch, places) as descriptors:
            scene = self._scene(batch, places, descriptors, compare)
            (self.folder / "scene.json").write_text(json.dumps(scene))
            words = [sys.executable, "-m", "support.adversary.act"]
            words += [str(self.folder / "scene.json"), str(self.folder / "lines")]
            if compare:
                words = [*self._monarch(batch, places), *words]
            self._launch(words, descriptors)
        if compare:
            self._take_report()
        return read_lines(self.folder / "lines")

    @contextmanager
    def _inherited(
        self, batch: Sequence[Steps], places: Sequence[Ground]
    ) -> Iterator[list[int]]:
        descriptors = [
            os.open(place.main / "log", steps.inherited)
            for steps, place in zip(batch, places, strict=True)
        ]
        try:
            yield descriptors
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _scene(
        self,
        batch: Sequence[Steps],
        places: Sequence[Ground],
        descriptors: list[int],
        compare: bool,
    ) -> dict[str, Any]:
        plays = [
            {
                "play": number,
                "base": str(places[number].base),
                "steps": steps.steps,
                "cold": steps.cold,
                "hot": steps.hot,
                "observed": steps.observed,
                "inherited": descriptors[number],
            }
            for number, steps in enumerate(batch)
        ]
        can = [name for name, lack in self.lacks.items() if not lack]
        twins = [str(place) for place in self.twin_places]
        return {"plays": plays, "can": can, "twins": twins, "compare": compare}

    def _monarch(self, batch: Sequence[Steps], places: Sequence[Ground]) -> list[str]:
        roots = [root for place in places for root in place.roots]
        datasets = [{"path": str(root), "exclude": ["ex"]} for root in roots]
        datasets += [{"path": str(place)} for place in self.twin_places]
        settings = {
            "schema": 1,
            "datasets": datasets,
            "tiers": [self._tier(batch[0].disk)],
            "cold_open": {"mode": batch[0].mode},
            "fill": {"enabled": batch[0].fill},
        }
        waits = ["--strict"]
        if self.crowd is not None:
            datasets.append({"path": str(self.crowd)})
            settings["catalog"] = {"wait_max": "0s"}
            waits = []
        config, report = self.folder / "monarch.yaml", self.folder / "report.json"
        config.write_text(json.dumps(settings))
        report.unlink(missing_ok=True)
        line = [str(self.command), "run", "-q", *waits, "-c", str(config)]
        return [*line, "--report", str(report), "--"]

    def _tier(self, disk: bool) -> dict[str, str]:
        if not disk:
            return {"name": "ram", "kind": "ram", "capacity": "64MiB"}
        # On the origin's own file system, where copies and links between both work.
        place = self.folder / "tier"
        place.mkdir(exist_ok=True)
        return {"name": "ssd", "kind": "ssd", "path": str(place), "capacity": "64MiB"}

    def _launch(self, words: list[str], descriptors: list[int]) -> None:
        if self.twins:
            pairs = map(str, (*self.twins, *self.twin_places))
            words = ["sh", "-ec", MOUNT_TWINS, "sh", *pairs, *words]
        if not self.lacks["mounts"]:
            words = ["unshare", "-m", "--propagation", "private", *words]
        environ = {"PYTHONPATH": str(TESTS), "PYTHONSAFEPATH": "1"}
        process = start(words, environ, pass_fds=descriptors)
        try:
            done = finish(process, LIMIT_S)
        except subprocess.TimeoutExpired:
            return
        # A program that hangs or crashes leaves fewer lines, which are judged.
        said = done.stderr.decode(errors="replace")[-SAID_BYTES_MAX:]
        assert done.status in (0, *CRASHES), f"{done.status}: {said}"

    def _take_report(self) -> None:
        path = self.folder / "report.json"
        report = json.loads(path.read_bytes()) if path.exists() else {"counters": {}}
        self.early += report["counters"].get("origin_early", 0)
        self.listed += report["counters"].get("listings_answered", 0)
        self.denied += report["counters"].get("absent_answered", 0)
        self.redirected += sum(
            value
            for name, value in report["counters"].items()
            if name.startswith(("opens_miss", "opens_hit_"))
        )


def read_lines(path: Path) -> dict[int, list[Line]]:
    """The lines of each play."""
    plays: dict[int, list[Line]] = {}
    for text in path.read_text().splitlines():
        line = json.loads(text)
        plays.setdefault(line["play"], []).append(line)
    return plays


def minimised(scene: Scene, failure: Failure) -> Failure:
    """The same failure with as few steps as a greedy search leaves."""
    smaller = scene.play([failure.steps.upto(failure.step)])[0]
    best = smaller or failure
    while len(best.steps.steps) > 1:
        tried = list(best.steps.without())[: sequences.BATCH]
        # The search may find another fault; that one has its own seeds.
        alike = [found for found in scene.play(tried) if found]
        failures = [found for found in alike if found.kind == best.kind]
        if not failures:
            return best
        best = min(failures, key=lambda one: one.step)
        best = scene.play([best.steps.upto(best.step)])[0] or best
    return best
