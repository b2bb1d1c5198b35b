"""Names, inodes and users that are not what they seem: no lie, no stale byte."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.shim_fixtures import Board, Compile

AT_EMPTY_PATH = 0x1000
NOBODY = 65534


def python(board: Board, script: str) -> str:
    """What a Python program under the Shim prints."""
    return board.run(sys.executable, "-c", script)


def test_write_through_a_hard_link_outside_the_root_is_seen(board: Board) -> None:
    other = board.folder / "other"
    os.link(board.root / "two.bin", other)
    board.start()
    board.ask("publish two.bin")

    shown = python(
        board,
        f"open('{other}', 'r+').write('new')\n"
        f"print(open('{board.root}/two.bin').read(3))",
    )

    assert shown == "new\n"
    assert board.ask("written two.bin") == "1"
    assert board.ask("written one.bin") == "0"


@pytest.mark.root
@pytest.mark.parametrize("way", ["open('{0}', 'r+').write('new')", "os.unlink('{0}')"])
def test_write_through_a_bind_mount_is_seen(board: Board, way: str) -> None:
    bound = board.folder / "bound"
    bound.mkdir()
    subprocess.run(["mount", "--bind", board.root, bound], check=True)
    try:
        board.start()
        board.ask("publish two.bin")
        python(board, "import os; " + way.format(bound / "two.bin"))
    finally:
        subprocess.run(["umount", bound], check=True)

    assert board.ask("written two.bin") == "1"
    assert board.ask("root") == "0"


@pytest.mark.parametrize("place", ["{0}", "{0}/../{1}", "/proc/self/cwd"])
def test_link_above_a_root_that_is_replaced_is_followed_anew(
    board: Board, place: str
) -> None:
    (board.folder / "above").symlink_to(board.folder)
    other = board.folder / "newer" / board.root.name
    other.mkdir(parents=True)
    (other / "two.bin").write_text("newer")
    path = board.folder / "above" / board.root.name / "two.bin"
    board.start("-a", str(path.parent))
    board.ask("publish two.bin")
    here = place.format(board.folder, board.folder.name)

    shown = python(
        board,
        f"import os; os.chdir('{board.folder}'); print(open('{path}').read(3))\n"
        "os.symlink('newer', 'new')\n"
        f"os.rename('new', os.path.relpath('{here}/above'))\n"
        f"print(open('{path}').read(5))",
    )

    assert shown == "two\nnewer\n"


def test_file_of_the_program_with_a_lost_replicas_inode_is_itself(
    board: Board,
) -> None:
    board.start()
    board.ask("publish two.bin")
    replica = Path(board.ask("where two.bin"))
    mode = (board.root / "two.bin").stat().st_mode
    # As if the Tier's file system had given the inode away: same number, other file.
    replica.chmod(0o644)
    replica.write_text("a stranger")

    other = board.folder / "other"
    other.touch(0o640)

    shown = python(
        board,
        f"import os; f = os.open('{path}', os.O_RDONLY)\n"
        f"os.replace('{other}', '{path}'); os.fchmod(f, 0o600)\n"
        f"g = os.open('{path.parent}/a/b/three.bin', os.O_RDONLY)\n"
        f"os.unlink('{path.parent}/a/b/three.bin'); print(os.listxattr(g))",
    )

    assert shown == "[]\n"
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.root
def test_write_through_a_link_to_an_overlay_is_seen(board: Board) -> None:
    upper, lower = board.folder / "upper", board.folder / "lower"
    upper.mkdir()
    board.root.rename(lower)
    board.root.mkdir()
    (board.folder / "link").symlink_to(board.root)
    subprocess.run(["mount", "-t", "tmpfs", "none", upper], check=True)
    try:
        (upper / "u").mkdir()
        (upper / "w").mkdir()
        layers = f"lowerdir={lower},upperdir={upper}/u,workdir={upper}/w"
        overlay = ["mount", "-t", "overlay", "none", "-o", layers, str(board.root)]
        subprocess.run(overlay, check=True)
        try:
            board.start()
            python(board, f"open('{board.folder}/link/two.bin', 'r+').write('new')")
        finally:
            subprocess.run(["umount", board.root], check=True)
    finally:
        subprocess.run(["umount", upper], check=True)

    assert board.ask("written two.bin") == "1"
