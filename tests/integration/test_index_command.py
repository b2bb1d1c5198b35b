"""`monarch index` as people type it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A dataset with one thing of each kind."""
    folder = tmp_path / "pets"
    (folder / "cats").mkdir(parents=True)
    (folder / "cats" / "tom.jpg").write_bytes(b"x" * 2048)
    (folder / "cats" / "x.lock").touch()
    os.mkfifo(folder / "pipe")
    return folder


def index(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs `monarch index` in a folder."""
    command = [sys.executable, "-m", "monarch", "index", *map(str, words)]
    environ = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60
    )


def test_an_index_is_written_and_summed_up_in_one_line(
    root: Path, tmp_path: Path
) -> None:
    done = index(tmp_path, root)

    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    for part in ("1 file,", "2 directories", "2.0 KiB", "pets.monarch-index"):
        assert part in done.stdout
    assert "1 excluded by include, exclude or never" in done.stdout
    assert "1 not a file, directory or link" in done.stdout
    assert (tmp_path / "pets.monarch-index").stat().st_size > 0
    assert done.stderr == ""


def test_a_fresh_index_passes_the_check_and_a_stale_one_fails_it(
    root: Path, tmp_path: Path
) -> None:
    index(tmp_path, root, "-o", "x.index")

    fresh = index(tmp_path, "--check", "x.index")
    (root / "cats" / "new.jpg").touch()
    stale = index(tmp_path, "--check", "x.index")

    assert fresh.returncode == 0, fresh.stdout + fresh.stderr
    assert "up to date" in fresh.stdout
    assert stale.returncode == 1
    assert f"{root}/cats has changed" in stale.stdout


def test_a_file_that_changed_in_place_since_is_shown_as_it_is(
    root: Path, tmp_path: Path, monarch_command: Path, run_root: Path
) -> None:
    index(tmp_path, root, "-o", "x.index")
    path = root / "cats" / "tom.jpg"
    with path.open("ab") as file:
        file.write(b"more")
    script = (
        "import os, sys\nsize = lambda: os.stat(sys.argv[1]).st_size\n"
        "print(size(), len(open(sys.argv[1], 'rb').read()), size())"
    )
    options = ["--set", "cold_open.mode=wait", "--set", "fill.enabled=false"]

    done = subprocess.run(
        [
            *(str(monarch_command), "run", "--index", "x.index"),
            *(*options, "--data", str(root), "--tier", f"ram:16MiB:{run_root}", "--"),
            *(sys.executable, "-c", script, str(path)),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.stdout == "2052 2052 2052\n", done.stderr


def test_a_damaged_index_fails_the_check(root: Path, tmp_path: Path) -> None:
    index(tmp_path, root, "-o", "x.index")
    content = bytearray((tmp_path / "x.index").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "x.index").write_bytes(content)

    done = index(tmp_path, "--check", "x.index")

    assert done.returncode == 1
    assert "damaged" in done.stdout


def test_datasets_and_patterns_come_from_the_configuration(
    root: Path, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(
        f"schema: 1\ndatasets:\n  - path: {root}\n    include: ['*.png']\n"
        f"    index: {tmp_path}/made.index\n"
    )

    made = index(tmp_path, "-c", "job.yaml")
    same = index(tmp_path, "-c", "job.yaml", "--check", "made.index")
    other = index(tmp_path, "--check", "made.index", root)

    assert made.returncode == 0, made.stderr
    assert "0 files" in made.stdout
    assert same.returncode == 0, same.stdout
    assert other.returncode == 1
    assert "include" in other.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no dataset"),
        (["/no/such/place"], "/no/such/place does not exist"),
        (["/dev/null"], "is not a directory"),
        (["pets\udcff"], "UTF-8"),
        (["pets", "-o", "/no/such/place/x"], "cannot write"),
        (["pets", "pets", "-o", "x"], "--output"),
    ],
)
def test_invalid_arguments_are_one_line_and_exit_code_2(
    root: Path, words: list[str], message: str
) -> None:
    done = index(root.parent, *words)

    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_progress_is_shown_when_a_scan_takes_longer_than_a_second(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    from monarch.cli.terminal import ScanProgress
    from monarch.origins.progress import Advance

    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    progress = ScanProgress("/pfs/x")
    for second in range(25):
        clock[0] = 100.0 + second / 2
        progress(Advance(second * 1000))
    progress.close()

    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "monarch: scanning /pfs/x: 2,000 names, 2,000/s",
        "monarch: scanning /pfs/x: 22,000 names, 2,000/s",
    ]


# -- saved indexes ------------------------------------------------------------------


def test_saved_indexes_are_listed_and_forgotten(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert index(tmp_path, "--list").stdout == "no index is saved\n"
    index(tmp_path, root)
    index(tmp_path, other)

    listed = index(tmp_path, "--list")
    forgot = index(tmp_path, "--forget", root)
    left = index(tmp_path, "--list", "--json")
    all_gone = index(tmp_path, "--forget", "--all")

    head, *lines = listed.stdout.splitlines()
    assert head.startswith("2 saved indexes, ")
    assert f"{root}: 1 file, " in " ".join(" ".join(lines).split())
    assert " ago" in listed.stdout
    assert "never: *.lock" in listed.stdout
    assert "links:" not in listed.stdout
    assert forgot.stdout == "removed 1 saved index\n"
    [one] = json.loads(left.stdout)["indexes"]
    assert (one["path"], one["files"]) == (str(other), 0)
    assert one["bytes"] > one["files"]
    assert Path(one["file"]).suffix == ".index"
    assert one["patterns"]["include"] == ["**"]
    assert 0 <= one["age_s"] < 600
    assert all_gone.stdout == "removed 1 saved index\n"
    assert not list((tmp_path / "state").rglob("*.index"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--forget"], "--forget needs PATH, or --all"),
        (["--forget", "--all", "/x"], "--forget needs PATH, or --all"),
        (["--forget", "/nowhere"], "no index of /nowhere is saved; see --list"),
        (["--forget", "--all", "--json"], "--json cannot be used here"),
        (["--list", "--all"], "--all cannot be used here"),
        (["--list", "--check", "x"], "--check cannot be used here"),
        (["--list", "/x"], "--list takes no PATH"),
        (["--list", "--set", "log.level=debug"], "--set cannot be used here"),
        (["--all", "/x"], "--all cannot be used here"),
        (["--json", "/x"], "--json cannot be used here"),
    ],
)
def test_a_mistake_with_saved_indexes_is_one_line(
    tmp_path: Path, words: list[str], message: str
) -> None:
    done = index(tmp_path, *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_scan_of_monarch_index_is_not_saved_if_saving_is_off(
    root: Path, tmp_path: Path
) -> None:
    index(tmp_path, root, "--set", "catalog.reuse=false")

    assert not (tmp_path / "state").exists()
