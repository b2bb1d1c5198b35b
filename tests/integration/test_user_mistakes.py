"""Mistakes of users: one clear line, the right code, and nothing started."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from monarch.errors import UsageError
from monarch.report import check_report_file
from monarch.tiers import Tier, TierSettings, check_places, open_tier
from monarch.units import Size
from support.dataset import Dataset

NOBODY = 65534

BAD_YAML = "schema: 1\ndatasets: [\n"
UNKNOWN_KEYS = "schema: 1\nfil: {}\ncold_open: {mod: auto}\n"


@pytest.fixture
def place(tmp_path: Path, dataset: Dataset) -> Path:
    """A directory with a dataset and everything that mistakes are made with."""
    (tmp_path / "file").write_text("#!/bin/sh\n")
    (tmp_path / "tier" / "inner").mkdir(parents=True)
    (tmp_path / "same").symlink_to("tier")
    (tmp_path / "bad.yaml").write_text(BAD_YAML)
    (tmp_path / "keys.yaml").write_text(UNKNOWN_KEYS)
    (tmp_path / "bytes.yaml").write_bytes(b"\xd5\x00\x01")
    (tmp_path / "text.yaml").write_text("hello")
    return tmp_path


def run_in(
    place: Path, command: Path, words: str, program: str = "touch started"
) -> subprocess.CompletedProcess[str]:
    argv = [str(command), "run", *words.split(), "--", *program.split()]
    return subprocess.run(
        argv, cwd=place, capture_output=True, text=True, check=False, timeout=60
    )


MISTAKES = [
    ("", "no dataset to stage: give --data PATH, or datasets in a configuration file"),
    ("--data none", "datasets[0].path: {place}/none does not exist"),
    ("--data /dev/null", "datasets[0].path: /dev/null is not a directory"),
    ("--data /", "--data: datasets[0].path: '/' is not valid; use a directory below /"),
    ("--data @none", "datasets[0].path: list {place}/none: No such file"),
    ("--dat dataset", "no such option: --dat, did you mean --data? (see "),
    ("--data dataset --tier ssd:1MiB:/none/x", "tiers[0].path: /none/x does not exist"),
    ("--data dataset --tier ssd:1MiB:{place}/file", "tiers[0].path: {place}/file is "),
    ("--data dataset --tier ram:8000GiB", "tiers[0].capacity: 8000GiB is larger than"),
    (
        "--data dataset --tier ram:8GiX",
        "--tier ram:8GiX: tiers[0].capacity: '8GiX' is not ",
    ),
    (
        "--data dataset --tier ssd:8GiB",
        "--tier ssd:8GiB: 'ssd:8GiB' is not valid; add a ",
    ),
    (
        "--data dataset --tier tape:1GiB",
        "--tier tape:1GiB: 'tape:1GiB' is not valid; use ",
    ),
    (
        "--data dataset --tier ssd:1MiB:{place}/dataset",
        "tiers[0].path: {place}/dataset is inside the dataset {place}/dataset; choose",
    ),
    (
        "--data tier/inner --tier ssd:1MiB:{place}/tier",
        "datasets[0].path: {place}/tier/inner is inside tier 'ssd' ({place}/tier); ",
    ),
    (
        "--data dataset --tier ssd:1MiB:{place}/tier --tier ssd:1MiB:{place}/same",
        "tiers[1].path: {place}/same is already the directory of tier 'ssd'; ",
    ),
    ("--data dataset --set fill=", "--set fill=: fill: null is not valid; "),
    ("--data dataset --set fil.enabled=no", "--set fil.enabled=no: fil: unknown key"),
    ("--data dataset --index a --data tier", "--index: needs exactly one dataset; "),
    ("--data dataset --report tier", "report.file: {place}/tier is a directory; name "),
    ("--data dataset --report file/r.json", "report.file: {place}/file/r.json cannot "),
    ("--data dataset --report /proc/r.json", "report.file: /proc/r.json cannot be "),
    ("-c none.yaml", "none.yaml: cannot be read: No such file or directory"),
    ("-c tier", "tier: cannot be read: Is a directory"),
    ("-c bad.yaml", "bad.yaml:3:1: not valid YAML: "),
    ("-c bytes.yaml", "bytes.yaml:1:1: byte 0xd5 is not valid UTF-8"),
    ("-c text.yaml", "text.yaml:1:1: 'hello' is not valid; use keys such as"),
]


@pytest.mark.parametrize(("words", "line"), MISTAKES)
def test_a_mistake_is_one_line_with_its_place_and_starts_nothing(
    place, monarch_command, run_root, words, line
):
    done = run_in(place, monarch_command, words.format(place=place))

    assert done.returncode == 2
    assert done.stderr.startswith("monarch: " + line.format(place=place))
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not (place / "started").exists()
    assert list(run_root.iterdir()) == []


def test_every_mistake_of_a_file_is_reported_at_once(place, monarch_command, run_root):
    done = run_in(place, monarch_command, "-c keys.yaml")

    starts = [" ".join(line.split()[:3]) for line in done.stderr.splitlines()]
    assert starts == [
        "monarch: keys.yaml:2:1: fil:",
        "monarch: keys.yaml:3:13: cold_open.mod:",
    ]
    assert done.returncode == 2
    assert not (place / "started").exists()


@pytest.mark.parametrize(
    ("program", "code", "line"),
    [
        ("nosuchprogram", 127, "nosuchprogram: command not found"),
        ("./none", 127, "cannot run ./none: No such file or directory"),
        ("./file", 126, "cannot run ./file: Permission denied"),
        ("./tier", 126, "cannot run ./tier: Is a directory"),
    ],
)
def test_a_program_that_cannot_run_is_reported_as_by_a_shell(
    place, monarch_command, run_root, program, code, line
):
    done = run_in(place, monarch_command, "--data dataset", program)

    assert (done.returncode, done.stderr) == (code, f"monarch: {line}\n")
    assert list(run_root.iterdir()) == []


@pytest.mark.parametrize("words", ["config check", "index /u"])
def test_a_removed_working_directory_is_reported(
    tmp_path, monarch_command, run_root, words
):
    script = f"mkdir gone; cd gone; rmdir ../gone; exec {monarch_command} {words}"

    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    line = "the working directory cannot be used: No such file or directory; change to "
    assert done.stderr == f"monarch: {line}another one\n"
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("name", "reason"),
    [("none", "No such file or directory"), ("file", "not an index file")],
)
def test_an_index_that_cannot_be_used_is_named_once_and_scanned_for(
    place, monarch_command, run_root, name, reason
):
    done = run_in(place, monarch_command, f"-q --data dataset --index {name}")

    used = f"index {place}/{name} is not used, scanning instead: {reason}"
    assert done.stderr == f"monarch: {used}\n"
    assert done.returncode == 0
    assert (place / "started").exists()


def test_a_misspelled_variable_is_reported(
    place, monarch_command, run_root, monkeypatch
):
    monkeypatch.setenv("MONARCH_STAGING_DISABLED", "1")

    done = run_in(place, monarch_command, "--data dataset")

    assert done.returncode == 2
    assert "; did you mean MONARCH_STAGING_DISABLE?" in done.stderr
    assert not (place / "started").exists()


def test_quiet_does_not_hide_that_nothing_is_staged(
    place, monarch_command, monkeypatch
):
    monkeypatch.setenv("MONARCH_STAGING_RUN_DIR", str(place / "file"))

    done = run_in(place, monarch_command, "-q --data dataset")

    assert done.returncode == 0
    assert done.stderr.endswith(
        "file: Not a directory; the program runs without staging\n"
    )
    assert (place / "started").exists()


def test_reports_are_written_into_missing_directories(place, monarch_command, run_root):
    done = run_in(place, monarch_command, "-q --data dataset --report %j/new/r.json")

    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(place.glob("local-*/new/r.json"))) == 1


@pytest.fixture
def as_nobody(place: Path) -> Iterator[Path]:
    """The place, reachable by a user without privileges, whom the test then is."""
    for folder in (place, *place.parents[:4]):
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o555)
    for name in ("dataset", "tier"):
        (place / name).chmod(0o700)
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield place
    finally:
        os.setresuid(0, 0, 0)


def ssd(path: Path) -> Tier:
    size, none = Size.parse("1MiB"), Size.parse("0B")
    return open_tier(TierSettings("tiers[0]", "ssd", "ssd", path, size, none), "j.n")


@pytest.mark.root
def test_a_path_that_the_user_may_not_use_is_named_with_its_key(as_nobody):
    dataset, tier = as_nobody / "dataset", as_nobody / "tier"

    with pytest.raises(UsageError, match=r"^datasets\[0\].path: .* cannot be read by "):
        check_places({"datasets[0].path": dataset}, [])
    with pytest.raises(UsageError, match=r"^k: .* cannot be reached: Permission "):
        check_places({"k": dataset / "class-0"}, [])
    with pytest.raises(UsageError, match=r"^tiers\[0\].path: .* is not writable; "):
        check_places({}, [ssd(tier)])
    with pytest.raises(UsageError, match=r"^tiers\[0\].path: .* be reached: Permiss"):
        check_places({}, [ssd(tier / "inner")])
    for path in (tier / "r.json", tier / "inner" / "new" / "r.json"):
        with pytest.raises(UsageError, match=r"^report.file: .* cannot be written: "):
            check_report_file(path)
