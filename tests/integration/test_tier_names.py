"""Replica names in a Tier belong to Monarch: clearing a Tier loses no dataset."""

import os
import subprocess
from pathlib import Path

import pytest

from support.shim_fixtures import Board, begin, python

READLINK = "path = os.readlink(f'/proc/self/fd/{fd}')"
SPELLINGS = {
    "name": "pass",
    "link": "os.symlink(path, D + '/../out'); path = D + '/../out'",
    "relative": "os.chdir(os.path.dirname(path)); path = os.path.basename(path)",
}
CHANGES = {
    "open": "os.open(path, os.O_WRONLY)",
    "truncate": "os.open(path, os.O_WRONLY | os.O_TRUNC)",
    "stream": "open(path, 'a')",
    "truncate(2)": "os.truncate(path, 0)",
    "chmod": "os.chmod(path, 0o600)",
    "chown": "os.chown(path, 1, 1)",
    "utime": "os.utime(path)",
    "setxattr": "os.setxattr(path, 'user.x', b'1')",
    "action": (
        "os.waitpid(os.posix_spawn('/bin/true', ['true'], os.environ, file_actions="
        "[(os.POSIX_SPAWN_OPEN, 1, path, os.O_WRONLY | os.O_TRUNC, 0)]), 0)"
    ),
}
MOVES = {
    "lchown": "os.lchown(path, 1, 1)",
    "rename": "os.rename(path, D + '/moved')",
    "replaced": "os.rename(D + '/other.bin', path)",
    "link": "os.link(path, D + '/linked')",
}


def state(path: Path) -> tuple[bytes, int, int, int]:
    """The state in which a change would show."""
    now = path.stat()
    return path.read_bytes(), now.st_mode, now.st_uid, now.st_mtime_ns


def check_refused(board: Board, spelling: str, change: str) -> None:
    """The change fails; origin and Replica stay unchanged, and are served."""
    files = [board.root / "two.bin", Path(board.ask("where two.bin"))]
    before = [state(file) for file in files]

    shown = python(
        board,
        f"fd = os.open('two.bin', os.O_RDONLY); {READLINK}; {SPELLINGS[spelling]}\n"
        f"try: {change}\n"
        "except OSError as error: print(error.errno)\n"
        "os.chdir(D); print(read('two.bin'))",
    )

    assert shown == "30\ntwo\n"
    assert [state(file) for file in files] == before
    assert board.ask("written two.bin") == "0"
    assert not {"moved", "linked"} & set(os.listdir(board.root))


@pytest.mark.parametrize("way", CHANGES)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_change_by_the_name_of_a_replica_in_its_tier_is_refused(
    linked: Board, spelling: str, way: str
) -> None:
    check_refused(linked, spelling, CHANGES[way])


@pytest.mark.parametrize("way", MOVES)
@pytest.mark.parametrize("spelling", ["name", "relative"])
def test_replica_keeps_its_name_and_has_no_other(
    linked: Board, spelling: str, way: str
) -> None:
    check_refused(linked, spelling, MOVES[way])


REMOVALS = ["rm -rf {}/*", "find {} -type f -delete", "unlink $(find {} -type f)"]


@pytest.mark.parametrize("removal", REMOVALS)
def test_program_that_clears_a_tier_leaves_the_dataset(
    linked: Board, removal: str
) -> None:
    if "unlink" in removal:
        os.unlink(linked.ask("where other.bin"))
    linked.run("sh", "-c", removal.format(linked.tier))

    assert not any(part.is_file() for part in linked.tier.rglob("*"))
    assert (linked.root / "two.bin").read_bytes()[:3] == b"two"
    assert python(linked, "print(read('two.bin'), read('other.bin'))") == "two oth\n"


COPIES = {
    "write": ("open(copy, 'w').write('mine')", b"mine", 0o100400),
    "append": ("open(copy, 'a').write('mine')", None, 0o100400),
    "descriptor": ("os.fchmod(os.open(copy, os.O_RDONLY), 0o600)", None, 0o100600),
    "chmod": ("os.chmod(copy, 0o600)", None, 0o100600),
    "unlink": ("os.unlink(copy)", None, 0),
    "rename": ("os.rename(copy, D + '/../moved')", None, 0),
}


@pytest.mark.parametrize(
    "way",
    [
        # Only root writes to a copy of mode 400.
        pytest.param(way, marks=[pytest.mark.root] * (way in ("write", "append")))
        for way in COPIES
    ],
)
def test_copy_with_the_inode_of_a_lost_replica_belongs_to_the_program(
    board: Board, way: str
) -> None:
    two = board.root / "two.bin"
    two.chmod(0o400)
    begin(board, "two.bin")
    replica = Path(board.ask("where two.bin"))
    copy = replica.rename(replica.with_name("copy"))  # as if removed and created again
    before = state(two)
    call, body, mode = COPIES[way]

    python(board, f"copy = {str(copy)!r}\n{call}")

    assert state(two) == before
    assert (copy.stat().st_mode if copy.exists() else 0) == mode
    if body:
        assert copy.read_bytes() == body


def test_session_that_clears_its_scratch_keeps_its_dataset(
    monarch_command: Path, run_root: Path, tmp_path: Path
) -> None:
    data, scratch = tmp_path / "data", tmp_path / "scratch"
    for folder in (data, scratch):
        folder.mkdir()
    for number in range(4):
        (data / str(number)).write_bytes(b"v1")
    script = (
        f"cat {data}/* && chmod -R u+w {scratch}/*; rm -rf {scratch}/*; cat {data}/*"
    )
    run: list[str | Path] = [
        monarch_command,
        "run",
        "-q",
        "--tier",
        f"ssd:64MiB:{scratch}",
    ]
    run += ["--set", "cold_open.mode=wait", "--data", data, "--", "sh", "-c", script]

    done = subprocess.run(run, capture_output=True, timeout=60)

    assert done.stdout == 8 * b"v1"
    assert not list(scratch.iterdir())
    assert [(data / str(number)).read_bytes() for number in range(4)] == 4 * [b"v1"]
