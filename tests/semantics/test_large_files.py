"""Promises on large files, in the words of the page on semantics."""

from collections.abc import Callable
from pathlib import Path

Under = Callable[..., None]


def test_large_file(under: Under, tree: Path) -> None:
    """a large file is served in blocks while it fills, and redirected when whole"""
    under(
        """
fd = os.open(D + "/shard.bin", os.O_RDONLY)
assert not redirected(D + "/shard.bin")
while os.read(fd, 1 << 20):
    pass
end = time.monotonic() + 30
while not redirected(D + "/shard.bin"):
    assert time.monotonic() < end
    time.sleep(0.01)
""",
        "--set",
        "fill.enabled=false",
    )


def test_shared_offset(under: Under, tree: Path) -> None:
    """an offset that descriptors share stays the kernel's"""
    under("""
fd = os.open(D + "/shard.bin", os.O_RDONLY)
other = os.dup(fd)
first, second = os.read(fd, 1000), os.read(other, 1000)
assert os.lseek(fd, 0, os.SEEK_CUR) == 2000
assert first + second == os.pread(fd, 2000, 0)
""")


def test_large_file_changed(under: Under, tree: Path) -> None:
    """a changed large file returns the origin's bytes from the next read on"""
    under(
        """
fd = os.open(D + "/shard.bin", os.O_RDONLY)
before = os.pread(fd, 7, 0)
plain = {**os.environ, "MONARCH_STAGING_DISABLE": "1"}
plain.pop("LD_PRELOAD")
script = "import sys; open(sys.argv[1], 'r+b').write(b'changed')"
words = [sys.executable, "-c", script, D + "/shard.bin"]
subprocess.run(words, env=plain, check=True)
assert before != os.pread(fd, 7, 0) == b"changed"
""",
        "--set",
        "fill.enabled=false",
    )
