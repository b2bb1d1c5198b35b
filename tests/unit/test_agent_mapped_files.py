"""Which large Files are waited for whole: by their names, and by what programs map."""

import mmap
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

from monarch.agent import mapped_files
from monarch.agent.mapped_files import MappedFiles, Mapping, mappings_below
from monarch.agent.namespace import Namespace
from monarch.agent.whole_files import WholeFiles, extension
from monarch.catalog.inventory import Inventory, MappedRoot
from monarch.catalog.patterns import MAPPED_FORMATS, Patterns, Selection
from monarch.metrics import AgentCounters
from monarch.native import CONSTANTS, ReplicaState
from monarch.tiers import Tier
from support.trees import Tree

LARGE = 1000
NAMES = {
    "a.npy": LARGE + 1,
    "b.bin": LARGE + 1,
    "deep/C.BIN": LARGE + 1,
    "d.txt": LARGE + 1,
    "none": LARGE + 1,
    "small.bin": LARGE,
    "small.npy": LARGE,
}
NO_PROCESS = 1 << 22  # above the kernel's largest pid

MAPS = b"""\
55d0-55d1 r-xp 00000000 08:01 7 /usr/bin/python3.11
7f00-7f20 r--s 00000000 08:01 11                         /pfs/data/a.bin
7f20-7f30 rw-p 00000000 00:00 0
7f30-7f40 r--s 00000000 08:01 12                         /pfs/data2/b.bin
7f40-7f50 r--s 00000000 08:01 13                         /pfs/data/in it/c d.bin
7f50-7f60 r--s 00000000 00:19 14                         /tier/0123 (deleted)
7f60-7f70 r--s 00000000 08:01 15                         /other /pfs/data/e.bin
7ff0-7fff rw-p 00000000 00:00 0                          [stack]
7fff-8000 r--s 00000000 08:01 16                         /pfs/data/last.bin"""


def test_mappings_below_a_directory_are_found_among_others() -> None:
    assert list(mappings_below(MAPS, b"/pfs/data")) == [
        Mapping(b"/pfs/data/a.bin", 11),
        Mapping(b"/pfs/data/in it/c d.bin", 13),
        Mapping(b"/pfs/data/last.bin", 16),
    ]
    assert list(mappings_below(MAPS, b"/tier")) == [Mapping(b"/tier/0123", 14)]
    assert list(mappings_below(MAPS, b"/nowhere")) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"a.bin", b".bin"),
        (b"in.dir/a.BIN", b".bin"),
        (b"in.dir/a", b""),
        (b"a.tar.gz", b".gz"),
        (b".hidden", b""),
    ],
)
def test_an_extension_is_the_end_of_a_name(name: bytes, expected: bytes) -> None:
    assert extension(name) == expected


@dataclass
class Scene:
    """A dataset as the agent sees it, without shared memory."""

    root: Path
    block: Any
    flags: npt.NDArray[np.uint8]
    words: npt.NDArray[np.uint32]
    counters: AgentCounters = field(default_factory=AgentCounters)
    replicas: dict[int, int] = field(default_factory=dict)
    pids: list[int] = field(default_factory=lambda: [os.getpid()])

    @property
    def namespace(self) -> Namespace:
        """What the classes under test need of a Namespace."""
        roots = [MappedRoot(os.fsencode(self.root), (), self.block)]
        inventory = Inventory(roots, CONSTANTS["EXTENT_BYTES"])
        segments = SimpleNamespace(
            whole=lambda count: self.flags[:count],
            words=lambda count: self.words[:count],
            files_of_inode=lambda tier, ino: [self.replicas[ino]] * (tier == 0),
        )
        made = SimpleNamespace(
            roots=roots,
            inventory=inventory,
            segments=segments,
            bases=(0,),
            path=lambda file: str(inventory.path(file)),
        )
        return cast("Namespace", made)

    def whole(self, *patterns: str) -> WholeFiles:
        """The flags, with those of names set."""
        made = WholeFiles(self.namespace, LARGE)
        made.flag_named(Selection(Patterns(include=(*MAPPED_FORMATS, *patterns))))
        return made

    def mapped(self, whole: WholeFiles, tier: Path) -> MappedFiles:
        """What looks at the mappings."""
        tiers = cast("list[Tier]", [SimpleNamespace(directory=tier)])
        return MappedFiles(
            self.namespace, whole, tiers, lambda: self.pids, self.counters
        )

    def flagged(self) -> set[str]:
        """The names of Files that are waited for whole."""
        inventory = self.namespace.inventory
        files = np.flatnonzero(self.flags).tolist()
        return {os.fsdecode(inventory.relative(file)) for file in files}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A dataset of large Files and of small ones."""
    root = tmp_path / "dataset"
    for name, size in NAMES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * size)
    block = Tree.scan(root).block
    count = len(NAMES)
    return Scene(root, block, np.zeros(count, np.uint8), np.zeros(count, np.uint32))


@pytest.fixture
def mapping() -> Iterator[Any]:
    """A function that keeps a file mapped until the test ends."""
    with ExitStack() as stack:

        def keep(path: Path) -> None:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            stack.callback(mapped.close)

        yield keep


def test_large_files_are_flagged_by_their_names(scene: Scene) -> None:
    scene.whole()
    assert scene.flagged() == {"a.npy"}

    scene.whole("deep/*", "none")
    assert scene.flagged() == {"a.npy", "deep/C.BIN", "none"}


def test_a_mapped_file_flags_all_large_ones_with_its_extension(
    scene: Scene, mapping: Any, tmp_path: Path
) -> None:
    found = scene.mapped(scene.whole(), tmp_path / "tier")
    mapping(scene.root / "b.bin")

    found.look()
    found.look()

    assert scene.flagged() == {"a.npy", "b.bin", "deep/C.BIN"}
    assert scene.counters.mapped_files == 1


def test_files_that_are_mapped_at_the_origin_are_told_apart(
    scene: Scene, mapping: Any, tmp_path: Path
) -> None:
    found = scene.mapped(scene.whole(), tmp_path / "tier")

    def mapped_there() -> set[str]:
        found.look()
        inventory = scene.namespace.inventory
        files = np.flatnonzero(scene.flags == CONSTANTS["WHOLE_MAPPED"]).tolist()
        return {os.fsdecode(inventory.relative(file)) for file in files}

    assert mapped_there() == set()
    mapping(scene.root / "b.bin")
    assert mapped_there() == {"b.bin"}
    mapping(scene.root / "deep/C.BIN")
    mapping(scene.root / "a.npy")
    assert mapped_there() == {"a.npy", "b.bin", "deep/C.BIN"}


def test_a_file_behind_a_link_is_known_by_its_inode(
    scene: Scene, mapping: Any, tmp_path: Path
) -> None:
    store = tmp_path / "store" / "one"
    store.parent.mkdir()
    store.write_bytes(b"x" * (LARGE + 1))
    (scene.root / "linked.bin").symlink_to(store)
    scene.block = Tree.scan(scene.root).block
    scene.flags = np.zeros(len(NAMES) + 1, np.uint8)
    scene.words = np.zeros(len(NAMES) + 1, np.uint32)
    found = scene.mapped(scene.whole(), tmp_path / "tier")
    mapping(store)

    found.look()

    assert scene.flagged() == {"a.npy", "b.bin", "deep/C.BIN", "linked.bin"}
    assert scene.counters.mapped_files == 1


def test_a_mapped_file_without_an_extension_flags_itself_alone(
    scene: Scene, mapping: Any, tmp_path: Path
) -> None:
    found = scene.mapped(scene.whole(), tmp_path / "tier")
    mapping(scene.root / "none")

    found.look()

    assert scene.flagged() == {"a.npy", "none"}


def test_a_small_file_that_is_mapped_tells_nothing(
    scene: Scene, mapping: Any, tmp_path: Path
) -> None:
    found = scene.mapped(scene.whole(), tmp_path / "tier")
    mapping(scene.root / "small.bin")

    found.look()

    assert scene.flagged() == {"a.npy"}
    assert scene.counters.mapped_files == 0


def test_a_replica_is_known_by_its_inode(
    scene: Scene, mapping: Any, tmp_path: Path
) -> None:
    """Its name may be gone already."""
    tier = tmp_path / "tier"
    tier.mkdir()
    replica = tier / "0123"
    replica.write_bytes(b"x" * 5000)
    block = scene.block
    entry = next(n for n in range(len(block.entries)) if block.path(n) == b"d.txt")
    scene.replicas[replica.stat().st_ino] = int(block.entries["file"][entry])
    found = scene.mapped(scene.whole(), tier)
    mapping(replica)
    replica.unlink()

    found.look()

    assert scene.flagged() == {"a.npy", "d.txt"}


def test_of_many_processes_each_round_looks_at_others(
    scene: Scene, mapping: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_files, "PROCESSES_MAX", 1)
    scene.pids = [NO_PROCESS, NO_PROCESS, os.getpid()]
    found = scene.mapped(scene.whole(), tmp_path / "tier")
    mapping(scene.root / "d.txt")

    seen = []
    for _ in scene.pids:
        found.look()
        seen.append("d.txt" in scene.flagged())

    assert seen.count(False) >= 1
    assert seen[-1]


def test_a_round_ends_after_its_time(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_files, "ROUND_S", 0.0)
    looked: list[int] = []

    def note(pid: int) -> bytes:
        looked.append(pid)
        return b""

    monkeypatch.setattr(mapped_files, "_read_mappings", note)
    scene.pids = [1, 2, 3]
    found = scene.mapped(scene.whole(), tmp_path / "tier")

    for _ in range(3):
        found.look()

    assert sorted(looked) == [1, 2, 3]


def test_nothing_is_looked_for_when_all_is_ready_or_flagged(scene: Scene) -> None:
    whole = scene.whole("none", "*.txt")
    inventory = scene.namespace.inventory
    lacking = [whole.lacking]
    for file in range(len(inventory)):
        if inventory.relative(file).lower().endswith(b".bin"):
            scene.words[file] = ReplicaState.READY
    lacking.append(whole.lacking)
    scene.flags[:] = 0
    lacking.append(whole.lacking)

    assert lacking == [True, False, True]
