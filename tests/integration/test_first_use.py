"""Typical first mistakes: each cause is reported with its remedy."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from monarch.catalog.patterns import Patterns
from monarch.native import FileSystemTraits, file_system_traits
from monarch.origins import walk
from monarch.origins.dataset import Dataset, prepare_index, scan
from monarch.origins.root import open_root
from monarch.origins.saved_indexes import SavedIndexes
from monarch.tiers import TierSettings, doubts
from monarch.units import Size, SizeKind
from support.commands import without_doubts
from support.dataset import Dataset as Generated
from support.terminal import Terminal

COLUMNS = 80
NOBODY = 65534
SLOW_NAMES = 150
READ = "import sys\nfor path in sys.argv[2:]: open(path, sys.argv[1]).read()"


@dataclass(frozen=True, slots=True)
class Told:
    """The output of a run as one line, and its report."""

    status: int
    text: str
    report: dict[str, Any]


@pytest.fixture
def run(monarch_command: Path, run_root: Path, tmp_path: Path) -> Callable[..., Told]:
    """A function that runs a program under Monarch with options."""
    file = tmp_path / "report.json"

    def begin(options: list[str | Path], *program: str | Path) -> Told:
        done = subprocess.run(
            [monarch_command, "run", "--report", file, *options, "--", *program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        report = json.loads(file.read_text()) if file.exists() else {}
        return Told(done.returncode, " ".join(done.stderr.split()), report)

    return begin


def read_all(paths: list[Path], mode: str = "rb") -> list[str | Path]:
    """A program that opens these files in a mode and reads them."""
    return [sys.executable, "-c", READ, mode, *paths]


def below(root: Path, dataset: Generated) -> list[Path]:
    """The files of a dataset by another name of its root."""
    return [root / path.relative_to(dataset.root) for path in dataset.paths]


# -- a dataset by another name ------------------------------------------------------


@contextmanager
def bound(source: Path, target: Path) -> Iterator[None]:
    target.mkdir()
    subprocess.run(["mount", "--bind", source, target], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", target], check=True)


def advice(alias: Path, dataset: Generated) -> str:
    return f"add {alias} to `aliases` of the dataset {dataset.root}: its files were"


def test_dataset_read_by_a_symbolic_link_names_the_alias_to_add(
    run, dataset, tmp_path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(dataset.root)

    told = run(["--data", dataset.root], *read_all(below(link, dataset)))

    assert advice(link, dataset) in told.text
    (row,) = told.report["elsewhere"]
    assert (row["dataset"], row["alias"]) == (str(dataset.root), str(link))
    assert row["example"].startswith(f"{link}/")


def test_the_alias_that_was_named_serves_the_dataset(run, dataset, tmp_path) -> None:
    link = tmp_path / "link"
    link.symlink_to(dataset.root)
    aliases = ["--set", f"datasets.0.aliases=[{link}]"]

    told = run(
        ["--data", dataset.root, *aliases],
        *read_all(below(link, dataset)),
    )

    assert told.report["elsewhere"] == []
    rows = [row for row in told.report["sources"] if row["kind"] != "outside"]
    assert sum(row["opens"] for row in rows) == len(dataset.paths)


@pytest.mark.root
def test_dataset_read_by_a_bind_mount_names_the_alias_to_add(
    run, dataset, tmp_path
) -> None:
    mounted = tmp_path / "mounted"
    with bound(dataset.root, mounted):
        names = [path.relative_to(dataset.root) for path in dataset.paths]
        told = run(
            ["--data", dataset.root],
            *("sh", "-c", 'cd "$0"; cat "$@" >/dev/null', mounted, *names),
        )

    assert advice(mounted, dataset) in told.text


def test_file_of_a_dataset_by_a_link_of_its_own_names_no_alias(
    run, dataset, tmp_path
) -> None:
    other = tmp_path / "other"
    os.symlink(dataset.paths[0], other)

    told = run(["--data", dataset.root], *read_all([other]))

    assert f"{other} is a file of {dataset.root}; add the directory" in told.text


# -- files opened for writing too ------------------------------------------------------


def test_report_explains_why_opens_for_writing_are_not_served(run, dataset) -> None:
    paths = dataset.paths[:5]

    told = run(["--data", dataset.root], *read_all(paths, "r+b"))

    assert f"no file of {dataset.root} was opened for reading." in told.text
    assert (
        "5 opens were for writing (such as mode r+b) and read the origin; open files "
        "that are only read in read-only mode"
    ) in told.text
    assert told.report["opens_for_writing"] == 5


# -- tiers with misleading names -------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A directory on the file system of the dataset, which is not in memory."""
    traits = file_system_traits(tmp_path)
    if traits is None or traits.in_memory or traits.is_remote:
        pytest.skip("temporary files are not on a disk here")
    path = tmp_path / "disk"
    path.mkdir()
    return path


@pytest.mark.parametrize(
    ("tier", "line"),
    [
        ("ram:8MiB:{disk}", "tier ram is of kind ram, but {disk} is not in memory;"),
        ("ssd:8MiB:/dev/shm", "tier ssd is of kind ssd, but /dev/shm is in memory "),
        (
            "ssd:8MiB:{disk}",
            "tier ssd ({disk}) is on the same file system as the dataset {data}: ",
        ),
    ],
)
def test_doubtful_tier_is_reported_in_one_line_at_the_start(
    run, dataset, disk, tier, line
) -> None:
    told = run(["--data", dataset.root, "--tier", tier.format(disk=disk)], "true")

    assert line.format(disk=disk, data=dataset.root) in told.text
    assert told.text.count("monarch: tier ") == 1
    assert told.status == 0


def test_tier_in_memory_is_not_doubtful(run, dataset) -> None:
    told = run(["--data", dataset.root, "--tier", "ram:64MiB:/dev/shm"], "true")

    assert told.text.startswith(f"monarch: staging {dataset.root} (41 files, ")


def test_capacity_below_the_dataset_is_reported_at_the_start(run, dataset) -> None:
    room = sum(-(-path.stat().st_size // 4096) * 4096 or 4096 for path in dataset.paths)
    short, whole = (
        run(["--data", dataset.root, "--tier", f"ram:{size}B:/dev/shm"], "true").text
        for size in (room // 2, 2 * room)
    )

    start, rest = " ".join(short.split()).split("; ", 1)
    assert start.startswith(f"monarch: staging {dataset.root} (41 files, ")
    assert 0 < int(rest.partition("% of it")[0]) <= 50
    assert "% of it fits" not in whole


def test_config_check_reports_a_doubtful_tier(
    monarch_command, dataset, disk, tmp_path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        f"schema: 1\ndatasets: [{{path: {dataset.root}}}]\ntiers:\n"
        f"  - {{name: fast, kind: ram, capacity: 8MiB, path: {disk}}}\n"
    )

    done = subprocess.run(
        [monarch_command, "config", "check", file], capture_output=True, text=True
    )

    assert done.stdout.splitlines() == [
        f"warning: tier fast is of kind ram, but {disk} is not in memory; use kind "
        "ssd, or a path below /dev/shm",
        f"ok: {file}",
    ]
    assert done.returncode == 0


def test_tier_on_a_network_file_system_is_doubtful(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(
        doubts, "file_system_traits", lambda _: FileSystemTraits(False, True)
    )
    size = Size(SizeKind.BYTES, 1 << 20)
    settings = TierSettings("tiers[0]", "ssd", "ssd", tmp_path, size, size)

    (doubt,) = doubts.doubts_about([settings], [tmp_path])

    assert "is on a network file system" in doubt


# -- nothing to stage, and unreadable files ------------------------------------------


def test_empty_dataset_is_reported_at_the_start(run, tmp_path) -> None:
    (tmp_path / "empty" / "below").mkdir(parents=True)

    told = run(["--data", tmp_path / "empty"], "true")

    assert f"monarch: {tmp_path}/empty has no file to stage" in told.text


def test_include_that_matches_nothing_is_reported_at_the_start(run, dataset) -> None:
    png = ["--set", "datasets.0.include=['*.png']"]

    told = run(["--data", dataset.root, *png], "true")

    assert (
        f"no file of {dataset.root} is staged: include, exclude and never leave out "
        "all 41 names; change these patterns"
    ) in told.text


@pytest.mark.root
def test_unreadable_directory_and_file_are_reported_with_path_and_errno(
    as_nobody: Path,
) -> None:
    warnings: list[str] = []
    saved = SavedIndexes(as_nobody / "state")
    dataset = Dataset(str(as_nobody / "data"), Patterns(), saved=saved)

    for _ in "scanned", "saved":
        indexed = prepare_index(dataset, warn=warnings.append)
        indexed.save()

    # The walk returns names in the order of the directory.
    for warning in warnings:
        assert warning.startswith(f"not staged of {as_nobody}/data: ")
        assert "below: Permission denied" in warning
        assert "file: Permission denied" in warning
        assert "other" not in warning
    assert len(warnings) == 2
    assert not indexed.scanned


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """A dataset with what a user without privileges, who the test then is, cannot
    read."""
    with tempfile.TemporaryDirectory(prefix="monarch-nobody-") as folder:
        place, data = Path(folder), Path(folder) / "data"
        (data / "below").mkdir(parents=True)
        for name in ("below/hidden", "file", "other"):
            (data / name).write_text(name)
        (place / "state").mkdir()
        for path, mode in ((data / "below", 0o700), (data / "file", 0o600)):
            path.chmod(mode)
        place.chmod(0o755)
        os.chown(place / "state", NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, 0)
        try:
            yield place
        finally:
            os.setresuid(0, 0, 0)


# -- the scan ------------------------------------------------------------------------


def test_scan_progress_moves_within_one_slow_directory(
    mount_counted, tmp_path, monkeypatch
) -> None:
    """As it does for people: they see the count four times a second."""
    source = tmp_path / "flat"
    source.mkdir()
    for number in range(SLOW_NAMES):
        (source / str(number)).touch()
    view = mount_counted(source, stat_us=20_000)
    monkeypatch.setattr(walk, "PROGRESS_SECONDS", 0.1)
    seen: list[int] = []

    scan(open_root(str(view.root)), Patterns(), threads=2, progress=seen.append)

    moving = seen[seen.index(next(filter(None, seen))) :]
    stood = sum(one == other for one, other in pairwise(moving))
    assert seen[-1] == SLOW_NAMES
    assert len(moving) > 10
    assert stood <= len(moving) // 4


# -- small mistakes ------------------------------------------------------------------


def test_config_check_reports_where_each_missing_dataset_is_named(
    monarch_command, tmp_path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        f"datasets:\n- path: {tmp_path}/none\n- path: /usr\n- path: {tmp_path}/other\n"
    )

    done = subprocess.run(
        [monarch_command, "config", "check", file], capture_output=True, text=True
    )

    assert done.returncode == 1
    rest = "does not exist; name a directory, a file or a pattern"
    assert done.stdout.splitlines() == [
        f"{file}:2:9: datasets[0].path: {tmp_path}/none {rest}",
        f"{file}:4:9: datasets[2].path: {tmp_path}/other {rest}",
    ]


def test_mistyped_report_directory_is_an_error_before_the_run(
    monarch_command, run_root, dataset, tmp_path
) -> None:
    run = [monarch_command, "run", "--data", dataset.root, "--report"]
    done = subprocess.run(
        [*run, tmp_path / "repotrs" / "r.json", "--", "touch", tmp_path / "started"],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 2
    assert done.stderr.startswith(
        f"monarch: report.file: the directory {tmp_path}/repotrs of "
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset", "monarch-0"]


def test_report_directory_of_a_template_is_made(
    monarch_command, run_root, dataset, tmp_path, memory
) -> None:
    place = tmp_path / "%j" / "%n.json"
    run = [monarch_command, "run", "--job", "j", "--data", dataset.root, "-q"]
    run += ["--tier", f"ram:64MiB:{memory}"]

    subprocess.run([*run, "--report", place, "--", "true"], check=True)

    (file,) = tmp_path.glob("j*/*.json")
    assert json.loads(file.read_text())["run"]["command"] == ["true"]


@pytest.mark.parametrize("place", ["%q.json", "100%.json", "%", "%%%x"])
def test_unknown_percent_in_the_template_of_the_report_is_refused(
    monarch_command, run_root, dataset, place
) -> None:
    run = [monarch_command, "run", "--data", dataset.root, "--report", place]

    done = subprocess.run([*run, "--", "true"], capture_output=True, text=True)

    assert done.returncode == 2
    assert "use only %j (job), %n (node), %t (time), %p (process) and %%" in done.stderr


def test_slurm_example_starts_where_slurm_tmpdir_is_unset(
    monarch_command, dataset, monkeypatch
) -> None:
    monkeypatch.setenv("DATASET", str(dataset.root))
    monkeypatch.delenv("SLURM_TMPDIR", raising=False)
    example = Path(__file__).parents[2] / "configs" / "slurm.yaml"

    done = subprocess.run(
        [monarch_command, "config", "check", example], capture_output=True, text=True
    )

    # Where /tmp is on the disk of the dataset, it is doubtful as a tier.
    assert (done.returncode, without_doubts(done.stdout)) == (0, [f"ok: {example}"])


# -- 80 columns ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            "run --tier ram:8MiB --data $D -- cat $D/file",
            "(1 file, 2 B) to ram 8.0 MiB",
        ),
        ("run --tier ram:8MiB --data $D -- cat $D/file", "2 B read from the origin"),
        ("run --data $D/no -- true", "no does not exist"),
        ("plan --data $D/no", "no does not exist"),
        ("run --data $D --set fill.cuncurrency=4 -- true", "did you mean"),
        ("config check $D/no", "No such file"),
        ("index -o $D.index $D", "1 file, 1 directory"),
    ],
)
def test_lines_on_a_terminal_of_80_columns_end_between_words(
    monarch_command, run_root, command, words
) -> None:
    """Paths are short, so that the terminal has no reason to break any word."""
    with tempfile.TemporaryDirectory(prefix="m-", dir="/tmp") as place:
        root = Path(place) / "all-photographs-of-the-year" / "of-animals"
        root.mkdir(parents=True)
        (root / "file").write_text("x\n")
        names = {"M": str(monarch_command), "D": str(root)}
        terminal = Terminal({**os.environ, **names})
        terminal.send(f"stty cols {COLUMNS}\n")
        terminal.expect("prompt> ")
        terminal.send(f"$M {command}\n")
        told = terminal.expect("prompt> ")
        terminal.close()

    lines = told.replace("\r\n", "\n").splitlines()[:-1]
    assert words in " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= COLUMNS
