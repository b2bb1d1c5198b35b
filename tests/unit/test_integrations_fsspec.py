"""`monarch://` reads the files of this node through fsspec, and changes none."""

import errno
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fsspec
import pyarrow
import pyarrow.parquet
import pytest

from monarch.integrations.fsspec import StagedFileSystem

BODY = bytes(range(256)) * 10


@pytest.fixture
def files() -> StagedFileSystem:
    return StagedFileSystem()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "one").write_bytes(BODY)
    (folder / "sub" / "two").write_text("first\nsecond\n")
    (folder / "broken").symlink_to("nowhere")
    return folder


def test_a_url_opens_the_file_of_its_path(root: Path) -> None:
    with fsspec.open(f"monarch://{root}/one", "rb") as file:
        assert file.read() == BODY
    with fsspec.open(f"monarch://{root}/sub/two", "r") as file:
        assert file.read() == "first\nsecond\n"


def test_folders_are_listed_and_searched(files: StagedFileSystem, root: Path) -> None:
    listed = files.ls(f"monarch://{root}")

    assert [(one["name"], one["type"]) for one in listed] == [
        (f"{root}/broken", "other"),
        (f"{root}/one", "file"),
        (f"{root}/sub", "directory"),
    ]
    assert files.ls(f"{root}/one", detail=False) == [f"{root}/one"]
    assert files.glob(f"monarch://{root}/**/t*") == [f"{root}/sub/two"]
    assert files.find(str(root / "sub")) == [f"{root}/sub/two"]
    assert files.size(f"{root}/one") == len(BODY)
    assert files.exists(f"monarch://{root}/one")
    assert not files.exists(f"monarch://{root}/none")
    with pytest.raises(FileNotFoundError):
        files.info(f"monarch://{root}/none")


@pytest.mark.parametrize(
    ("start", "end"),
    [(None, None), (0, 0), (3, 9), (100, None), (None, -5), (-5, None), (9, 10**6)],
)
def test_ranges_are_those_of_the_bytes(
    files: StagedFileSystem, root: Path, start: int | None, end: int | None
) -> None:
    assert files.cat_file(f"{root}/one", start, end) == BODY[start:end]


def test_many_ranges_are_read_and_errors_returned_or_raised(
    files: StagedFileSystem, root: Path
) -> None:
    paths = [f"{root}/one", f"{root}/none", f"{root}/one"]

    first, missing, last = files.cat_ranges(paths, [0, 0, 5], [4, 4, 9])

    assert (first, last) == (BODY[:4], BODY[5:9])
    assert isinstance(missing, FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        files.cat_ranges(paths, 0, 4, on_error="raise")
    with pytest.raises(ValueError, match="2 places for 3 paths"):
        files.cat_ranges(paths, [0, 0], 4)


def snapshot(root: Path) -> dict[Path, object]:
    """All that is below a folder."""
    return {
        path: path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


CHANGES: dict[str, Callable[[StagedFileSystem, str], object]] = {
    "open": lambda files, root: files.open(f"{root}/one", "wb"),
    "append": lambda files, root: files.open(f"{root}/one", "ab"),
    "text": lambda files, root: files.open(f"{root}/one", "w"),
    "cp_file": lambda files, root: files.cp_file(f"{root}/one", f"{root}/new"),
    "copy": lambda files, root: files.copy(f"{root}/one", f"{root}/new"),
    "mkdir": lambda files, root: files.mkdir(f"{root}/new"),
    "mkdirs": lambda files, root: files.mkdirs(f"{root}/new/more"),
    "move": lambda files, root: files.move(f"{root}/one", f"{root}/new"),
    "rename": lambda files, root: files.rename(f"{root}/one", f"{root}/new"),
    "pipe": lambda files, root: files.pipe(f"{root}/one", b"x"),
    "pipe_file": lambda files, root: files.pipe_file(f"{root}/one", b"x"),
    "put": lambda files, root: files.put(f"{root}/one", f"{root}/new"),
    "upload": lambda files, root: files.upload(f"{root}/one", f"{root}/new"),
    "rm": lambda files, root: files.rm(f"{root}/one"),
    "delete": lambda files, root: files.delete(f"{root}/sub", recursive=True),
    "rmdir": lambda files, root: files.rmdir(f"{root}/sub"),
    "touch": lambda files, root: files.touch(f"{root}/one"),
    "write_text": lambda files, root: files.write_text(f"{root}/one", "x"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_refused(files: StagedFileSystem, root: Path, change: str) -> None:
    before = snapshot(root)

    with pytest.raises(OSError, match="can only be read") as refused:
        CHANGES[change](files, str(root))

    assert refused.value.errno == errno.EROFS
    assert snapshot(root) == before


# pyarrow leaves closing to the garbage collector, which is to run here.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_pyarrow_reads_a_table_through_it(files: StagedFileSystem, root: Path) -> None:
    table = pyarrow.table({"number": list(range(1000))})
    pyarrow.parquet.write_table(table, root / "some.parquet")

    found = pyarrow.parquet.read_table(str(root / "some.parquet"), filesystem=files)

    assert found.equals(table)
    gc.collect()


def test_a_file_has_another_key_when_it_is_changed(
    files: StagedFileSystem, root: Path
) -> None:
    before = files.ukey(f"{root}/one")
    os.utime(root / "one", (1, 1))

    assert files.ukey(f"{root}/one") != before
    assert files.modified(f"{root}/one").timestamp() == 1


def test_staged_files_are_read_under_monarch(
    root: Path, run_root: Path, monarch_command: Path
) -> None:
    program = "import fsspec, sys; print(len(fsspec.open(sys.argv[1]).open().read()))"
    words = [sys.executable, "-P", "-c", program, f"monarch://{root}/one"]

    done = subprocess.run(
        [str(monarch_command), "run", "--data", str(root), "--", *words],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.stdout, done.returncode) == (f"{len(BODY)}\n", 0), done.stderr
    assert "100.0% of 1 open was ready" in done.stderr
