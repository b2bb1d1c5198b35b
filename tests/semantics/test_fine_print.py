"""Fine print on writes and names of files: each sentence is true."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

Under = Callable[..., None]


LONG = ("d" * 200,) * 5
"""Below a root this is more than 1,024 bytes of a whole path, and fewer of the name."""


def test_open_before(under: Under, tree: Path) -> None:
    """A descriptor opened before the first write to its file keeps the old bytes. Its
    mode, owner and times follow the origin while the file keeps a name of the scan and
    its path has < 1,024 bytes
    """
    tree.joinpath(*LONG).mkdir(parents=True)
    tree.joinpath(*LONG, "f").touch(0o644)
    under("""
fd = os.open(D + "/spare.bin", os.O_RDONLY)
with open(D + "/spare.bin", "r+b") as file:
    file.write(b"new")
    file.truncate(20)
    os.fchmod(file.fileno(), 0o640)
    if os.geteuid() == 0:
        os.fchown(file.fileno(), 3, 4)
os.utime(D + "/spare.bin", (1, 2))
assert os.pread(fd, 20_000, 0) == b"s" * 10_000
seen, now = os.fstat(fd), os.stat(D + "/spare.bin")
assert seen.st_size == 10_000 and now.st_size == 20
follow = ("st_mode", "st_uid", "st_gid", "st_atime", "st_mtime", "st_ctime")
assert now.st_mtime == 2 and now.st_mode & 0o777 == 0o640
assert [getattr(seen, f) for f in follow] == [getattr(now, f) for f in follow]
long = D + ("/" + "d" * 200) * 5 + "/f"
fd = os.open(long, os.O_RDONLY)
os.chmod(long, 0o600)
assert len(long) > 1_023 and tier(fd) and os.stat(long).st_mode & 0o777 == 0o600
assert os.fstat(fd).st_mode & 0o777 == 0o644
fd = os.open(D + "/a.bin", os.O_RDONLY)
other = os.open(D + "/hard.bin", os.O_RDONLY)
os.unlink(D + "/a.bin")
os.chmod(D + "/hard.bin", 0o600)
assert tier(fd) and os.fstat(fd).st_mode & 0o777 == 0o600
os.rename(D + "/hard.bin", D + "/moved.bin")
os.chmod(D + "/moved.bin", 0o640)
assert tier(fd) and os.fstat(fd).st_mode & 0o777 != 0o640
""")


def test_failed_removal(under: Under, tree: Path) -> None:
    """An unlink or rename that fails still marks its file, which is then read from the
    origin
    """
    (tree / "sub").chmod(0o555)
    under("""
less = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] * (os.geteuid() == 0)
assert redirected(D + "/sub/b.bin") and redirected(D + "/spare.bin")
assert subprocess.run([*less, "rm", "-f", D + "/sub/b.bin"], stderr=-3).returncode == 1
try:
    os.rename(D + "/spare.bin", D + "/none/spare.bin")
except FileNotFoundError:
    pass
else:
    raise AssertionError
assert not redirected(D + "/sub/b.bin") and not redirected(D + "/spare.bin")
assert redirected(D + "/a.bin")
""")


def test_paths_of_the_origin(under: Under, tree: Path) -> None:
    """Paths with `..` after a link or an unknown name go to the origin, as do names of
    1,024 bytes or more below a root or with their working directory
    """
    (tree / "folder").symlink_to("sub")
    above = tree.joinpath(*LONG)
    above.mkdir(parents=True)
    for extra in (18, 19):
        (above / ("f" * extra)).touch()
    under("""
os.mkdir(D + "/made")
assert redirected(D + "/sub/../a.bin") and redirected(D + "/" + "./" * 600 + "a.bin")
assert not redirected(D + "/folder/../a.bin") and not redirected(D + "/made/../a.bin")
below = "/".join(["d" * 200] * 5)
short, long = (below + "/" + "f" * extra for extra in (18, 19))
assert len(short) == 1_023 and redirected(D + "/" + short)
assert len(long) == 1_024 and not redirected(D + "/" + long)
os.chdir(D)
assert redirected("a.bin") and not redirected(short)
""")


def test_lost_name(under: Under, tree: Path) -> None:
    """A change through a redirected descriptor, or its name in `/proc`, fails with
    `ESTALE` if the file lost the names of the scan, also by a rename, or its path is
    out of reach or >= 1,024 bytes

    Reopening such a name in `/proc` to read fails with `ESTALE`, too, if the file was
    written to or its agent has ended. Neither failure touches another file
    """
    tree.joinpath(*LONG).mkdir(parents=True)
    (tree / "far").mkdir(0o700)
    for name in (tree.joinpath(*LONG, "f"), tree / "far" / "f"):
        name.touch(0o644)
        if os.geteuid() == 0:
            os.chown(name, 65534, -1)
    under("""
fd = os.open(D + "/spare.bin", os.O_RDONLY)
assert tier(fd)
os.rename(D + "/sub/b.bin", D + "/spare.bin")
for change in (
    lambda: os.fchmod(fd, 0o600),
    lambda: os.truncate(f"/proc/self/fd/{fd}", 0),
    lambda: os.open(f"/dev/fd/{fd}", os.O_WRONLY | os.O_TRUNC),
):
    try:
        change()
    except OSError as error:
        assert error.errno == errno.ESTALE
    else:
        raise AssertionError
assert os.stat(D + "/spare.bin").st_size == 50_000
written = os.open(D + "/a.bin", os.O_RDONLY)
with open(D + "/a.bin", "r+b") as file:
    file.write(b"new")
for name in ("/a.bin", "/hard.bin"):
    os.rename(D + name, D + name + ".moved")
try:
    os.open(f"/dev/fd/{written}", os.O_RDONLY)
except OSError as error:
    assert error.errno == errno.ESTALE
else:
    raise AssertionError
long = D + ("/" + "d" * 200) * 5 + "/f"
assert len(long) > 1_023
fd = os.open(long, os.O_RDONLY)
far = os.open(D + "/far/f", os.O_RDONLY)
assert tier(fd) and tier(far)
if os.geteuid() == 0:
    os.setuid(65534)
for end in (fd, far) if os.geteuid() == 65534 else (fd,):
    try:
        os.fchmod(end, 0o600)
    except OSError as error:
        assert error.errno == errno.ESTALE
    else:
        raise AssertionError
""")
    assert all(
        name.stat().st_mode & 0o777 == 0o644
        for name in (tree.joinpath(*LONG, "f"), tree / "far" / "f")
    )


def test_spawn_actions(under: Under, tree: Path) -> None:
    """An action of `posix_spawn` that opens a redirected descriptor by its name in
    `/proc` reads the Replica, also after a write

    As root, an action of `posix_spawn` that opens an earlier action's descriptor by its
    name in `/proc` writes to the Replica, and the write is lost
    """
    under("""
fd = os.open(D + "/spare.bin", os.O_RDONLY)
os.set_inheritable(fd, True)
assert tier(fd)
if os.geteuid() == 0:
    actions = [
        (os.POSIX_SPAWN_DUP2, fd, 50),
        (os.POSIX_SPAWN_OPEN, 1, "/dev/fd/50", os.O_WRONLY | os.O_APPEND, 0),
    ]
    words = ["echo", "LOST"]
    pid = os.posix_spawn("/bin/echo", words, os.environ, file_actions=actions)
    assert os.waitpid(pid, 0)[1] == 0
    assert os.path.getsize(D + "/spare.bin") == 10_000
fd = os.open(D + "/a.bin", os.O_RDONLY)
old = os.pread(fd, 3, 0)
os.set_inheritable(fd, True)
with open(D + "/a.bin", "r+b") as file:
    file.write(b"NEW")
actions = [(os.POSIX_SPAWN_OPEN, 0, f"/dev/fd/{fd}", os.O_RDONLY, 0)]
out, into = os.pipe()
actions.append((os.POSIX_SPAWN_DUP2, into, 1))
pid = os.posix_spawn("/usr/bin/head", ["head", "-c3"], os.environ, file_actions=actions)
assert os.waitpid(pid, 0)[1] == 0
assert os.read(out, 3) == old != b"NEW"
""")


def test_lost_program(under: Under, tree: Path) -> None:
    """A redirected descriptor of a file that has lost the names of the scan cannot be
    executed (`EACCES`)
    """
    shutil.copy("/bin/true", tree / "program")
    under("""
fd = os.open(D + "/program", os.O_RDONLY)
os.set_inheritable(fd, True)
assert tier(fd)
assert subprocess.run([f"/dev/fd/{fd}"], pass_fds=[fd]).returncode == 0
os.rename(D + "/program", D + "/moved")
assert not os.access(f"/dev/fd/{fd}", os.X_OK)
try:
    os.execv(f"/dev/fd/{fd}", ["program"])
except OSError as error:
    assert error.errno == errno.EACCES
else:
    raise AssertionError
""")


def test_full_table(under: Under) -> None:
    """A process without a free descriptor cannot change a file through a redirected
    one: `ESTALE`, or `EROFS` by its name in `/proc`
    """
    under("""
import resource
fd = os.open(D + "/spare.bin", os.O_RDONLY)
assert tier(fd)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
full = []
try:
    while True:
        full.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    assert error.errno == errno.EMFILE
for change, number in (
    (lambda: os.fchmod(fd, 0o600), errno.ESTALE),
    (lambda: os.chmod(f"/proc/self/fd/{fd}", 0o600), errno.EROFS),
):
    try:
        change()
    except OSError as error:
        assert error.errno == number, error
    else:
        raise AssertionError
os.chmod(D + "/spare.bin", 0o640)
assert os.stat(D + "/spare.bin").st_mode & 0o777 == 0o640
os.close(full.pop())
os.fchmod(fd, 0o600)
assert os.stat(D + "/spare.bin").st_mode & 0o777 == 0o600
""")


def test_removed_file(under: Under) -> None:
    """`fstat` of a redirected descriptor shows the Replica's inode and device once the
    job has removed the file's last name, or once the agent has ended and the file's
    names are gone
    """
    under("""
fds = [os.open(D + name, os.O_RDONLY) for name in ("/spare.bin", "/a.bin")]
assert all(tier(fd) for fd in fds)
origin = [os.stat(D + name) for name in ("/spare.bin", "/a.bin")]
copy = plain("stat", "-c", "%d %i", os.readlink(f"/proc/self/fd/{fds[0]}"))
copy = [int(word) for word in copy.split()]
os.unlink(D + "/spare.bin")
os.unlink(D + "/a.bin")
seen = [os.fstat(fd) for fd in fds]
assert not os.path.samestat(seen[0], origin[0]) and seen[0].st_nlink == 0
assert [seen[0].st_dev, seen[0].st_ino] == copy
assert os.path.samestat(seen[1], origin[1]) and seen[1].st_nlink == 1
""")


def test_links_of_others(under: Under, tree: Path) -> None:
    """Its link count and other metadata are those of the scan until it is written to"""
    os.link(tree / "spare.bin", tree.parent / "outside-link")
    (tree / "spare.bin").chmod(0o644)
    under("""
def seen():
    found = os.stat(D + "/spare.bin")
    return found.st_nlink, found.st_mode & 0o777
plain("rm", os.path.dirname(D) + "/outside-link")
plain("chmod", "600", D + "/spare.bin")
assert seen() == (2, 0o644)
os.truncate(D + "/spare.bin", 5)
assert seen() == (1, 0o600)
""")


def test_holes(under: Under, tree: Path) -> None:
    """A Replica has no holes"""
    with open(tree / "spare.bin", "r+b") as file:
        file.truncate(1 << 20)
    under("""
fd = os.open(D + "/spare.bin", os.O_RDONLY)
assert tier(fd) and os.lseek(fd, 0, os.SEEK_HOLE) == 1 << 20
assert os.stat(D + "/spare.bin").st_blocks * 512 < 1 << 20
""")


# statx() of a path or descriptor: its result, the supported attributes, the size.
STATX = """
def statx(mask, path="", fd=-100):
    raw = ctypes.create_string_buffer(256)
    assert libc.statx(fd, path.encode(), 0 if path else 0x1000, mask, raw) == 0
    return [int.from_bytes(raw[a:b], "little") for a, b in ((0, 4), (56, 64), (40, 48))]
"""


def test_statx(under: Under) -> None:
    """A statx for the basic fields returns these, without attributes or mount. For
    more, such as the birth time (Rust's default), it goes to the origin, except on a
    redirected descriptor
    """
    under(
        STATX
        + """
fd = os.open(D + "/spare.bin", os.O_RDONLY)
assert tier(fd) and statx(0x7FF, D + "/spare.bin") == [0x7FF, 0, 10_000]
plain("truncate", "-s", "5", D + "/spare.bin")
assert statx(0x7FF, D + "/spare.bin") == [0x7FF, 0, 10_000]
for more in (0x800, 0x1000):
    mask, attributes, size = statx(0x7FF | more, D + "/spare.bin")
    assert mask & 0x7FF == 0x7FF and size == 5
    assert statx(0x7FF | more, fd=fd) == [0x7FF, 0, 10_000]
"""
    )


def test_own_path_of_a_target(under: Under, tree: Path) -> None:
    """The target of a link is read from the origin if a program opens it by a path
    outside the datasets
    """
    under("""
assert redirected(D + "/outer")
assert not redirected(os.path.realpath(D + "/outer"))
""")


def test_absurd_time(under: Under, tree: Path) -> None:
    """a time after 2262"""
    after = 9_246_182_400
    os.utime(tree / "spare.bin", (after, after))
    if (tree / "spare.bin").stat().st_mtime != after:
        pytest.skip("needs a file system that keeps such times")
    under(f"""
for _ in range(2):
    assert os.stat(D + "/spare.bin").st_mtime == {after}
    assert not redirected(D + "/spare.bin") and redirected(D + "/a.bin")
""")
