"""The metadata requests that a scan and an epoch cost the origin."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from support.commands import without_doubts
from support.countfs import CountFs, Counts
from support.programs import Runner
from support.trees import Tree

Mount = Callable[..., CountFs]
FOLDERS, FILES = 3, 40
LONG_AGO_NS = 1_000_000_000_000_000_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A tree of FOLDERS folders with FILES files each."""
    root = tmp_path / "source"
    for folder in range(FOLDERS):
        (root / f"d{folder}").mkdir(parents=True)
        for number in range(FILES):
            (root / f"d{folder}" / f"f{number:03d}").write_bytes(b"x" * number)
    return root


def scanned(view: CountFs) -> Counts:
    """The counts of a scan of an unused mount."""
    tree = Tree.scan(view.root)
    assert tree.block.file_count == FOLDERS * FILES
    return view.counts()


def test_a_scan_asks_for_each_name_once(mount_counted: Mount, source: Path) -> None:
    counts = scanned(mount_counted(source, keep_ms=60_000))

    names = 1 + FOLDERS + FOLDERS * FILES
    assert counts.listings == 1 + FOLDERS
    assert names <= counts.stats <= names + 2  # the root is looked up before
    assert counts.opens == 0


def test_a_scan_uses_the_metadata_returned_with_the_names(
    mount_counted: Mount, source: Path
) -> None:
    """Also in a directory that is read in many parts."""
    for number in range(3000):
        (source / f"more-{number:050d}").touch()
    view = mount_counted(source, keep_ms=60_000, plus=1)

    Tree.scan(view.root)

    # The kernel chooses, part by part, whether names have metadata.
    assert view.counts().stats < 300


def test_a_scan_of_a_network_file_system_checks_no_read_access(
    mount_counted: Mount, source: Path
) -> None:
    """Server and mode may differ there; `access` of a program is the origin's."""
    view = mount_counted(source)

    for root, expected in ((view.root, {0}), (source, {1})):
        block = Tree.scan(root).block
        assert set(block.attrs["readable"][block.entries["attr"]].tolist()) == expected


def test_an_epoch_costs_one_open_and_one_read_a_file_and_no_stat_after_the_copy(
    mount_counted: Mount, source: Path, runner: Runner
) -> None:
    """Where the client keeps metadata, and files are older than an hour."""
    for path in source.rglob("f*"):
        os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))
    view = mount_counted(source, keep_ms=60_000, aged=1)
    read_all = (
        "import sys, pathlib\n"
        "for path in pathlib.Path(sys.argv[1]).glob('d*/f*'): path.read_bytes()\n"
    )

    outcome = runner.under_monarch(
        [sys.executable, "-c", read_all, view.root], roots=[view.root]
    )

    counts, files = view.counts(), FOLDERS * FILES
    tried = outcome.report["agent"]["tried_reads"]
    assert counts.opens == files + tried
    assert counts.reads == files - FOLDERS + tried  # one in each folder is empty
    assert counts.stats < files * 1.2


def sizes_program(paths: Path) -> list[str | Path]:
    """A program that prints the size read of each file."""
    text = (
        "import sys, pathlib\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).glob('d*/f*')):\n"
        "    print(path.name, len(path.read_bytes()))\n"
    )
    return [sys.executable, "-c", text, paths]


def test_the_next_job_compares_directories_and_scans_nothing(
    mount_counted: Mount, source: Path, runner: Runner, state_home: Path
) -> None:
    view = mount_counted(source)
    counts = []
    for reuse in ("true", "true", "false"):
        view.reset()
        settings = ["--set", "fill.enabled=false", "--set", f"catalog.reuse={reuse}"]
        runner.under_monarch(["true"], roots=[view.root], options=settings)
        counts.append(view.counts())
    first, loaded, scanned = counts

    assert len(list(state_home.rglob("*.index"))) == 1
    assert first.listings == scanned.listings == 1 + FOLDERS
    assert loaded.listings == 0
    # Files are compared beside the job; without cached names the kernel also requests
    # the directory of each.
    assert loaded.stats <= scanned.stats + 2 * FILES * FOLDERS


def test_a_file_that_grew_between_two_jobs_is_read_with_its_new_content(
    source: Path, runner: Runner, state_home: Path
) -> None:
    """Directories do not show it, so the second job loads the index of the first."""
    program = sizes_program(source)
    first = runner.under_monarch(program, roots=[source])
    grown = source / "d1" / "f007"
    with grown.open("ab") as file:
        file.write(b"more")
    assert len(list(state_home.rglob("*.index"))) == 1

    second = runner.under_monarch(program, roots=[source])

    assert first.words != second.words
    assert second.words == runner.plain(program).words
    # The job has noticed the change, so that the next one scans.
    assert not list(state_home.rglob("*.index"))


def test_a_program_that_writes_to_the_dataset_leaves_no_index(
    source: Path, runner: Runner, state_home: Path
) -> None:
    words = ["sh", "-c", f"echo more >> {source}/d0/f001"]
    runner.under_monarch(words, roots=[source])

    assert not list(state_home.rglob("*.index"))


@pytest.mark.parametrize("given", [False, True], ids=["reused", "--index"])
def test_a_retained_copy_of_a_file_that_grew_meanwhile_is_not_served(
    source: Path, runner: Runner, tmp_path: Path, given: bool
) -> None:
    program = sizes_program(source)
    options = ["--set", "retain=1h"]
    if given:
        made = tmp_path / "made.index"
        line = [str(runner.command), "index", str(source), "-o", str(made)]
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
        options += ["--index", str(made)]
    tier = tmp_path / "tier"
    tier.mkdir()
    retaining = replace(runner, tier=f"ssd:64MiB:{tier}")
    retaining.under_monarch(program, roots=[source], options=options)
    with (source / "d1" / "f007").open("ab") as file:
        file.write(b"more")

    again = retaining.under_monarch(program, roots=[source], options=options)

    status, stdout, stderr = again.words
    plain = runner.plain(program).words
    assert (status, stdout, without_doubts(stderr.decode())) == (*plain[:2], [])
    assert plain[2] == b""
    assert again.report["agent"]["adopted_files"] >= FOLDERS * FILES - 1


def test_a_link_costs_the_origin_one_readlink_and_one_stat(
    mount_counted: Mount, tmp_path: Path
) -> None:
    """Beside what its directory gives with the names, which is the kernel's choice."""
    links = 1000
    for name in ("links", "store/deep"):
        (tmp_path / "linked" / name).mkdir(parents=True)
    for number in range(links):
        (tmp_path / "linked" / "store" / "deep" / str(number)).touch()
        target = f"../store/deep/{number}"
        (tmp_path / "linked" / "links" / f"link-{number:050d}").symlink_to(target)
    view = mount_counted(tmp_path / "linked", keep_ms=60_000, plus=1)

    tree = Tree.scan(view.root / "links")

    counts = view.counts()
    assert tree.block.file_count == links
    assert counts.readlinks == links
    assert counts.stats + counts.readlinks <= 2.2 * links
