"""Several nodes of one job on one machine, with one counted dataset."""

import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from support import countfs
from support.certified import make_certified, make_sized
from support.commands import Command
from support.countfs import CountFs
from support.nodes import Job, Node, Outcome, Plan
from support.processes import wait_until
from support.spaces import Space

READER = Path(__file__).with_name("epoch_reader.py")
NAMES = "abcdefgh"
# A node of a busy machine is not late; tests of late nodes set less.
PATIENT = ("--set", "peers.timeout=20s")


@dataclass(frozen=True)
class Cluster:
    """The nodes of a test, the dataset that they share, and where it is counted.

    Args:
        sizes: the bytes of each file, by its name below the origin's root.
        ram: below which the RAM Tiers are made.
        rendezvous: the directory by which the nodes find each other.
        extra: options of every job.
        linked: a directory of links to the dataset, which programs read in its place.
    """

    command: Path
    folder: Path
    origin: CountFs
    sizes: Mapping[str, int]
    nodes: tuple[Node, ...]
    ram: Path
    rendezvous: Path
    extra: tuple[str, ...] = ()
    jobs: list[Job] = field(default_factory=list)
    linked: Path | None = None

    @property
    def root(self) -> Path:
        """The dataset as programs name it."""
        return self.linked or self.origin.root

    @property
    def size_bytes(self) -> int:
        """The bytes of the dataset."""
        return sum(self.sizes.values())

    def line(self, options: Sequence[str], nodes: Sequence[Node]) -> list[str]:
        """The words of `monarch run` before the program, the same on each node."""
        words = [str(self.command), "run", "-q", "--strict"]
        words += ["--data", str(self.root)]
        words += ["--hosts", ",".join(node.name for node in nodes)]
        words += ["--set", f"peers.interface={nodes[0].interface}"]
        words += ["--set", f"peers.rendezvous={self.rendezvous}", *PATIENT]
        if "--tier" not in options:
            words += ["--tier", f"ram:{4 * self.size_bytes}B:{self.ram}"]
        return [*words, *options, *self.extra, "--"]

    def start(
        self,
        plan: Plan,
        *options: str,
        nodes: Sequence[Node] | None = None,
        plain: bool = False,
        hold: Sequence[int] = (),
        absent: Sequence[int] = (),
    ) -> Job:
        """Start the same command on each node, or on some.

        Args:
            nodes: the nodes of the job, if not all.
            plain: without Monarch.
            hold: epochs that no program begins until they are released.
            absent: nodes of the job on which it does not start yet.
        """
        here = tuple(nodes or self.nodes)
        folder = self.folder / f"job{len(self.jobs)}"
        job = Job(folder, here, plan.workers, {}, [])
        place = self._write_plan(job, plan)
        for epoch in hold:
            job.hold(epoch)
        report = ["--report", str(job.folder / "report.json")]
        line = [] if plain else self.line([*options, *report], here)
        job.line.extend([*line, sys.executable, str(READER), str(place)])
        self.jobs.append(job)
        for node in here:
            if node.number not in absent:
                self.join(job, node.number)
        return job

    def join(self, job: Job, number: int, node: int | None = None) -> None:
        """Start a job's command once more.

        Args:
            number: of the command, which notes what it reads under it.
            node: where; by default on the node of this number.
        """
        where = self.nodes[number if node is None else node]
        job.running[number] = self._spawn(job, where, number)

    def run(self, plan: Plan, *options: str, **more: Any) -> Outcome:
        """Run a job to its good end."""
        return self.start(plan, *options, **more).finish()

    def held(self, node: Node) -> int:
        """How many files the first Tier of a node holds."""
        words = [str(self.command), "status", "--json"]
        done = subprocess.run(
            words, env=node.environ, capture_output=True, text=True, check=False
        )
        tiers = json.loads(done.stdout)["tiers"] if done.returncode == 0 else []
        return int(tiers[0]["files"]) if tiers else 0

    def await_held(self, files: int) -> None:
        """Wait until the first Tiers of all nodes hold so many files together."""
        wait_until(lambda: sum(map(self.held, self.nodes)) == files, "files to be held")

    def kill(self) -> None:
        """Kill all remaining processes on all nodes."""
        running = [one for job in self.jobs for one in job.running.values()]
        for one in running:
            one.kill()
        for node in self.nodes:
            node.kill()
        for one in running:
            one.process.wait()

    def _write_plan(self, job: Job, plan: Plan) -> Path:
        for name in ("meetings", "notes"):
            (job.folder / name).mkdir(parents=True)
        # The programs of a job on fewer nodes keep their numbers; others do nothing.
        epochs = plan.epochs
        if isinstance(epochs, int):
            here = {node.number for node in job.nodes}
            epochs = tuple(epochs if n in here else 0 for n in range(max(here) + 1))
        words = {
            **asdict(plan),
            "epochs": epochs,
            "root": str(self.root),
            "source": str(self.origin.source),
            "files": sorted(self.sizes),
            "meetings": str(job.folder / "meetings"),
            "notes": str(job.folder / "notes"),
        }
        place = job.folder / "plan.json"
        place.write_text(json.dumps(words))
        return place

    def _spawn(self, job: Job, node: Node, number: int) -> Command:
        node.run_root.mkdir(mode=0o700, parents=True, exist_ok=True)
        words = [*node.prefix, *job.line]
        environ = {**node.environ, "READER_NODE": str(number)}
        return Command.start(words, job.folder / str(number), environ)


@dataclass(frozen=True, slots=True)
class Tools:
    """The programs that a cluster is made of: monarch, and the counting file system."""

    monarch: Path
    countfs: Path


@dataclass(frozen=True, slots=True)
class Shape:
    """How many nodes there are, and how many files.

    Args:
        links: network namespaces for the nodes, if they shall have such.
        sizes: of each file, where they are not drawn around a mean.
    """

    nodes: int = 4
    files: int = 200
    mean_bytes: int = 20_000
    links: Sequence[Space] | None = None
    sizes: Sequence[int] = ()


@contextmanager
def clustered(
    tools: Tools, folder: Path, shape: Shape, **settings: int
) -> Iterator[Cluster]:
    """Makes nodes and their dataset in a folder; nothing of them outlives the block.

    Args:
        settings: of the counting file system.
    """
    source, root, meet = folder / "source", folder / "origin", folder / "meet"
    if shape.sizes:
        make_sized(source, shape.sizes, random.Random(1))
    else:
        make_certified(source, shape.files, shape.mean_bytes)
    root.mkdir()
    meet.mkdir(mode=0o700)
    with ExitStack() as undo:
        ram = Path(tempfile.mkdtemp(prefix="monarch-test-", dir="/dev/shm"))
        undo.callback(shutil.rmtree, ram, ignore_errors=True)
        mount = countfs.mounted(tools.countfs, source, root, **settings)
        cluster = Cluster(
            tools.monarch,
            folder,
            undo.enter_context(mount),
            sizes_of(source),
            tuple(make_node(folder, n, shape.links) for n in range(shape.nodes)),
            ram,
            meet,
        )
        undo.callback(cluster.kill)
        yield cluster


def sizes_of(root: Path) -> dict[str, int]:
    """The bytes of each file below a directory, by its relative path."""
    places = sorted(place for place in root.rglob("*") if place.is_file())
    return {str(place.relative_to(root)): place.stat().st_size for place in places}


def make_node(folder: Path, number: int, links: Sequence[Space] | None) -> Node:
    """One node, in a network namespace of its own if there are links."""
    place = folder / f"node{number}"
    if links is None:
        return Node(number, NAMES[number], place)
    return Node(number, NAMES[number], place, links[number].prefix, "eth0")
