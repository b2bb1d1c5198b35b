"""Promises on writes, in the words of the page on semantics."""

import subprocess
from collections.abc import Callable
from pathlib import Path

Under = Callable[..., None]


def test_write(under: Under, tree: Path) -> None:
    """an open for writing goes to the origin, and the file is not served from a Tier
    again
    """
    under("""
assert redirected(D + "/sub/b.bin")
with open(D + "/sub/b.bin", "r+b") as file:
    assert not tier(file.fileno())
    file.write(b"new")
assert not redirected(D + "/sub/b.bin")
with open(D + "/sub/b.bin", "rb") as file:
    assert file.read(4) == b"newb"
assert redirected(D + "/a.bin")
""")
    assert (tree / "sub" / "b.bin").read_bytes()[:4] == b"newb"


def test_any_name(under: Under) -> None:
    """a write by any name, link or inherited descriptor is read from then on"""
    under("""
def read(name):
    with open(D + name, "rb") as file:
        return tier(file.fileno()), file.read(3)
assert read("/spare.bin") == (True, b"sss") and read("/sub/b.bin") == (True, b"bbb")
os.symlink("sub/b.bin", D + "/new")
os.rename(D + "/new", D + "/inner")
with open(D + "/inner", "r+b") as file:
    file.write(b"NEW")
assert read("/sub/b.bin") == (False, b"NEW")
fd = os.open(D + "/spare.bin", os.O_RDONLY)
assert tier(fd)
os.chdir("/proc/self/fd")
with open(str(fd), "r+b") as file:
    assert not tier(file.fileno())
    file.write(b"NEW")
assert read("/spare.bin") == (False, b"NEW")
""")


def test_inherited_output(tree: Path, line: Callable[..., list[str]]) -> None:
    """a write by any name, link or inherited descriptor is read from then on"""
    with open(tree / "spare.bin", "r+b") as output:
        shell = ["sh", "-c", f"printf NEW; head -c3 '{tree}/spare.bin' >&2"]
        done = subprocess.run(
            line(*shell), stdout=output, stderr=subprocess.PIPE, timeout=60
        )

    assert done.stderr == b"NEW"


def test_other_changes(under: Under) -> None:
    """rename, unlink, truncate, chmod, chown, utime and setxattr do the same"""
    under("""
fd = os.open(D + "/a.bin", os.O_RDONLY)
assert tier(fd)
os.fchmod(fd, 0o640)
os.utime(fd, (1, 2))
assert os.stat(D + "/a.bin").st_mode & 0o777 == 0o640
assert os.fstat(fd) == os.stat(D + "/a.bin") and os.fstat(fd).st_mtime == 2
assert not redirected(D + "/a.bin") and not redirected(D + "/hard.bin")
assert redirected(D + "/spare.bin")
os.utime(D + "/spare.bin", (1, 2))
assert os.stat(D + "/spare.bin").st_mtime == 2 and not redirected(D + "/spare.bin")
assert redirected(D + "/sub/b.bin")
os.truncate(D + "/sub/b.bin", 5)
assert os.stat(D + "/sub/b.bin").st_size == 5
os.rename(D + "/sub/b.bin", D + "/sub/c.bin")
assert not os.path.exists(D + "/sub/b.bin")
with open(D + "/sub/c.bin", "rb") as file:
    assert file.read() == b"bbbbb"
os.unlink(D + "/spare.bin")
assert not os.path.exists(D + "/spare.bin")
""")


def test_directory_change(under: Under) -> None:
    """a change of a catalogued directory itself
    switches its whole root to pass-through
    """
    under("""
assert redirected(D + "/a.bin")
os.rename(D + "/sub", D + "/sub2")
assert not os.path.exists(D + "/sub/b.bin") and not redirected(D + "/a.bin")
with open(D + "/sub2/b.bin", "rb") as file:
    assert file.read(1) == b"b"
""")


def test_new_name(under: Under) -> None:
    """a name created during the job is handled by the origin"""
    under("""
before = os.stat(D).st_mtime_ns
with open(D + "/new", "w") as file:
    file.write("x")
assert os.path.exists(D + "/new") and not redirected(D + "/new")
assert "new" in os.listdir(D)
assert os.stat(D).st_mtime_ns > before
os.unlink(D + "/new")
assert not os.path.exists(D + "/new")
assert redirected(D + "/a.bin")
""")


def test_early_start(under: Under, tree: Path) -> None:
    """a program may start before indexing ends and is served as soon as the index is
    ready
    """
    under(
        """
with open(D + "/spare.bin", "w") as file:
    file.write("NEW")
end = time.monotonic() + 30
while not redirected(D + "/a.bin"):
    assert time.monotonic() < end
    time.sleep(0.01)
assert not redirected(D + "/spare.bin")
with open(D + "/spare.bin") as file:
    assert file.read() == "NEW"
""",
        *("--set", "catalog.wait_max=0s", "--set", "cold_open.mode=wait"),
    )
