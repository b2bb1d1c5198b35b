"""Links out of a dataset: what programs see and change through them."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

Under = Callable[..., None]
# Compares the results of a program with those of a program without Monarch.
SAME = """
import json
LOOKS = '''
import json, os, sys
def told(call, *words):
    try:
        return call(*words)
    except OSError as error:
        return error.errno
def look(path):
    def fields(found):
        return found if isinstance(found, int) else [
            found.st_mode, found.st_ino, found.st_dev, found.st_size, found.st_mtime_ns]
    return [fields(told(os.stat, path)), fields(told(os.lstat, path)),
        told(os.readlink, path), told(os.path.realpath, path),
        told(lambda: sorted(os.listdir(path))), os.access(path, os.R_OK)]
'''
exec(LOOKS)
def same(*names):
    for name in names:
        path = os.path.join(D, name)
        code = LOOKS + "print(json.dumps(look(sys.argv[1])))"
        true = json.loads(plain(sys.executable, "-c", code, path))
        assert json.loads(json.dumps(look(path))) == true, name
"""


@pytest.fixture
def linked(tree: Path) -> Path:
    """The dataset with links to a directory `store` beside it, and into that."""
    store = tree.parent / "store"
    (store / "sub" / "deep").mkdir(parents=True)
    for name in ("a.bin", "b.bin", "sub/c.bin", "sub/deep/d.bin"):
        (store / name).write_bytes(name.encode() * 100)
    (store / "current").symlink_to("sub")
    (tree / "file").symlink_to("../store/a.bin")
    (tree / "chain").symlink_to(store / "current" / "c.bin")
    (tree / "folder").symlink_to(store)
    (tree / "gone").symlink_to("../store/nothing")
    return tree


def test_followed(under: Under, linked: Path) -> None:
    """links are followed, also those that leave a root"""
    under("""
for name in ("inner", "outer", "file", "chain", "folder/b.bin", "folder/current/c.bin"):
    assert redirected(f"{D}/{name}"), name
    assert open(f"{D}/{name}", "rb").read() == plain("cat", f"{D}/{name}")
""")


def test_shown(under: Under, linked: Path) -> None:
    """stat, lstat, readlink, realpath and listings through links show what they do
    without Monarch
    """
    under(
        SAME
        + """
same("file", "chain", "folder", "folder/", "folder/sub", "folder/current", "gone")
same("folder/sub/deep/d.bin", "folder/nothing", "file/x", "folder/current/deep")
same("folder/../sub", "folder/sub/../a.bin", "folder/current/../b.bin")
"""
    )


def test_opened(under: Under, linked: Path) -> None:
    """O_NOFOLLOW, .. behind a link, and paths relative to a directory that was opened
    through a link mean what they do without Monarch
    """
    under("""
for name in ("file", "chain", "folder"):
    try:
        os.open(f"{D}/{name}", os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        assert error.errno == errno.ELOOP
    else:
        raise AssertionError(name)
assert open(D + "/folder/../store/b.bin").read() == "b.bin" * 100
for flags in (os.O_RDONLY, os.O_PATH):
    at = os.open(D + "/folder/sub", flags | os.O_DIRECTORY)
    fd = os.open("deep/d.bin", os.O_RDONLY, dir_fd=at)
    assert tier(fd) and os.read(fd, 9) == b"sub/deep/"
    assert os.stat("../a.bin", dir_fd=at).st_size == 500
os.chdir(D + "/folder/sub")
assert redirected("c.bin") and redirected("./deep/d.bin")
assert open("../a.bin").read() == "a.bin" * 100
""")


CHANGES = {
    "writes the target": 'open(STORE + "/a.bin", "w").write("new")',
    "writes through the link": 'open(D + "/file", "w").write("new")',
    "replaces the target": """
open(STORE + "/new", "w").write("new")
os.rename(STORE + "/new", STORE + "/a.bin")""",
    "retargets the link": """
open(STORE + "/new", "w").write("new")
os.unlink(D + "/file")
os.symlink("../store/new", D + "/file")""",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed(under: Under, linked: Path, change: str) -> None:
    """a write to a link's target, a retargeted link or a replaced part of its path is
    seen at once
    """
    under(f"""
STORE = os.path.dirname(D) + "/store"
fd = os.open(D + "/file", os.O_RDONLY)
assert tier(fd) and redirected(D + "/folder/b.bin")
{change}
assert open(D + "/file").read() == "new"
assert os.stat(D + "/file").st_size == 3
assert os.pread(fd, 10, 0) in (b"a.bina.bin", b"new")
""")


HOPS = {
    "a link that is passed": """
os.unlink(STORE + "/current")
os.symlink("other", STORE + "/current")""",
    "a directory that is passed": """
os.rename(STORE + "/sub", STORE + "/old")
os.rename(STORE + "/other", STORE + "/sub")""",
    "a directory above": """
shutil.copytree(STORE, STORE + ".new", symlinks=True)
os.rename(STORE, STORE + ".old")
os.rename(STORE + ".new", STORE)
os.rename(STORE + "/sub", STORE + "/old")
os.rename(STORE + "/other", STORE + "/sub")""",
}


@pytest.mark.parametrize("change", HOPS.values(), ids=HOPS)
def test_passed(under: Under, linked: Path, change: str) -> None:
    """so is a change of a directory or link on the path of a link, inside or outside
    the root
    """
    other = linked.parent / "store" / "other"
    other.mkdir()
    (other / "c.bin").write_text("other")
    under(f"""
import shutil
STORE = os.path.dirname(D) + "/store"
assert redirected(D + "/chain") and redirected(D + "/folder/sub/c.bin")
{change}
assert open(D + "/chain").read() == "other"
""")


def test_not_followed(under: Under, linked: Path) -> None:
    """a link to the root, to a directory above it or above the link, and to files that
    the kernel generates is left to the origin
    """
    (linked / "up").symlink_to("..")
    (linked / "self").symlink_to(".")
    (linked.parent / "store" / "sub" / "back").symlink_to("..")
    (linked / "kernel").symlink_to("/proc/self/comm")
    under("""
assert redirected(D + "/a.bin")
for name in ("up/store/b.bin", "folder/sub/back/b.bin", "kernel"):
    assert not redirected(f"{D}/{name}"), name
    assert open(f"{D}/{name}").read()
assert open(D + "/self/spare.bin").read() == "s" * 10_000
""")


def test_inside(under: Under, linked: Path) -> None:
    """with links: inside, links that leave the root are left to the origin"""
    under(
        """
assert redirected(D + "/inner") and not redirected(D + "/file")
assert not redirected(D + "/folder/b.bin")
""",
        "--set",
        "datasets[0].links=inside",
    )


def test_one_file(under: Under, linked: Path) -> None:
    """two links to one file share one Replica, within and between roots"""
    second = linked.parent / "second"
    second.mkdir()
    (second / "again").symlink_to("../store/a.bin")
    (second / "own").symlink_to(linked / "a.bin")
    under(
        """
second = os.path.dirname(D) + "/second"
def staged(path):
    fd = os.open(path, os.O_RDONLY)
    assert tier(fd)
    return os.readlink(f"/proc/self/fd/{fd}")
first = staged(D + "/file")
assert staged(D + "/folder/a.bin") == first == staged(second + "/again")
assert staged(D + "/a.bin") == staged(second + "/own")
""",
        data=("--data", str(linked), "--data", str(second)),
    )


def test_other_file_system(
    under: Under, linked: Path, tmp_path_factory: object
) -> None:
    """a link may lead to another file system"""
    place = Path("/dev/shm") / f"monarch-test-links-{os.getpid()}"
    place.mkdir()
    try:
        (place / "far").write_text("far")
        (linked / "far").symlink_to(place)
        under("""
assert redirected(D + "/far/far") and open(D + "/far/far").read() == "far"
at = os.open(D + "/far", os.O_RDONLY)
assert tier(os.open("far", os.O_RDONLY, dir_fd=at))
assert os.stat(D + "/far").st_dev != os.stat(D).st_dev
os.chdir(D)
before = os.stat("far")
open("/proc/self/cwd/far/new", "w").close()
after = os.stat("far")
assert after.st_mtime_ns != before.st_mtime_ns
assert after == os.fstat(os.open("far", os.O_RDONLY))
""")
    finally:
        shutil.rmtree(place)


def test_alias(under: Under, tree: Path) -> None:
    """links through an alias of a dataset are followed, too"""
    (tree.parent / "alias").symlink_to(tree)
    (tree / "through").symlink_to(tree.parent / "alias" / "spare.bin")
    config = tree.parent / "config.yaml"
    config.write_text(f"datasets: [{{path: {tree}, aliases: [{tree.parent}/alias]}}]")
    under(
        """
alias = os.path.dirname(D) + "/alias"
assert redirected(D + "/through") and redirected(alias + "/through")
os.rename(alias, alias + ".old")
os.mkdir(alias)
open(alias + "/spare.bin", "w").write("other")
assert open(D + "/through").read() == "other"
""",
        data=("--config", str(config)),
    )
