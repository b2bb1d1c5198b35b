"""The promises of the page on semantics, row by row, in the same words."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "monarch" / "pages" / "semantics.md"
Under = Callable[..., None]
FILES = (
    *("test_semantics", "test_writes", "test_large_files", "test_listings"),
    "test_links",
)


def rows() -> list[str]:
    """The first cells of the table of promises."""
    table = PAGE.read_text().split("\n## Promises\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
    return [cell.replace("`", "") for cell in cells[2:]]


def test_each_row_of_the_table_is_a_test_and_each_test_is_a_row() -> None:
    found = [
        ast.get_docstring(node)
        for file in FILES
        for node in ast.parse((HERE / f"{file}.py").read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    told = {" ".join(text.split()).lower() for text in found if text}
    assert told == {row.lower() for row in rows()}


def test_read_only_open(under: Under) -> None:
    """a read-only open of a staged file is served by its Replica"""
    under("""
fd = os.open(D + "/a.bin", os.O_RDONLY)
assert tier(fd)
want = bytes(range(256)) * 400
assert os.read(fd, 1 << 20) == want
assert os.pread(fd, 256, 256) == want[:256]
assert mmap.mmap(fd, 0, prot=mmap.PROT_READ)[:] == want
copy = os.dup(fd)
assert os.lseek(copy, 0, os.SEEK_SET) == 0 and os.read(copy, 10) == want[:10]
pipe = os.pipe()
assert os.sendfile(pipe[1], fd, 0, 100) == 100 and os.read(pipe[0], 100) == want[:100]
""")


def test_relative_open(under: Under) -> None:
    """relative and dirfd-relative opens are redirected too"""
    under("""
os.chdir(D)
assert redirected("a.bin") and redirected("./sub//b.bin") and redirected("sub/../a.bin")
os.chdir("sub")
assert redirected("../a.bin") and redirected("b.bin")
root = os.open(D, os.O_RDONLY | os.O_DIRECTORY)
fd = os.open("sub/b.bin", os.O_RDONLY, dir_fd=root)
assert tier(fd)
""")


def test_every_kind_of_open(under: Under) -> None:
    """fopen, C++ streams and Python opens are redirected alike"""
    under("""
libc.fopen.restype = libc.freopen.restype = ctypes.c_void_p
libc.fileno.argtypes = [ctypes.c_void_p]
libc.freopen.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p]
path = (D + "/a.bin").encode()
stream = libc.fopen(path, b"rb")
assert tier(libc.fileno(stream))
assert tier(libc.fileno(libc.freopen((D + "/sub/b.bin").encode(), b"r", stream)))
with open(D + "/a.bin", "rb") as file:
    assert tier(file.fileno())
for name in ("open", "open64", "__open_2", "__open64_2"):
    assert tier(getattr(libc, name)(path, os.O_RDONLY)), name
for name in ("openat", "openat64", "__openat_2", "__openat64_2"):
    assert tier(getattr(libc, name)(-100, path, os.O_RDONLY)), name
""")


def test_stat(under: Under, tree: Path) -> None:
    """a stat of a catalogued name shows what the origin shows"""
    before = {name: os.lstat(tree / name) for name in ("a.bin", "sub", "inner")}
    fields = [
        f for f in dir(os.stat_result) if f.startswith("st_") and f != "st_birthtime"
    ]
    want = {n: {f: getattr(s, f) for f in fields} for n, s in before.items()}
    under(f"""
want = {want!r}
for name, fields in want.items():
    seen = os.lstat(D + "/" + name)
    assert {{f: getattr(seen, f) for f in fields}} == fields, name
assert os.stat(D + "/inner").st_ino == want["a.bin"]["st_ino"]
assert os.access(D + "/a.bin", os.R_OK) and not os.path.exists(D + "/none")
""")


def test_fstat(under: Under) -> None:
    """an fstat of a redirected descriptor shows the origin's identity"""
    under("""
fd = os.open(D + "/a.bin", os.O_RDONLY)
assert tier(fd)
assert os.fstat(fd) == os.stat(D + "/a.bin")
assert os.path.samestat(os.fstat(fd), os.stat(D + "/hard.bin"))
""")


def test_hard_links(under: Under) -> None:
    """hard links share one Replica"""
    under("""
first, second = (os.open(D + n, os.O_RDONLY) for n in ("/a.bin", "/hard.bin"))
assert tier(first) and tier(second)
assert os.readlink(f"/proc/self/fd/{first}") == os.readlink(f"/proc/self/fd/{second}")
""")


def test_never(under: Under) -> None:
    """files that match never, sockets, fifos and devices are left to the origin"""
    under("""
assert not redirected(D + "/x.lock")
assert not redirected(D + "/fifo", os.O_RDONLY | os.O_NONBLOCK)
""")


def test_changed_origin(under: Under, tree: Path) -> None:
    """a file changed on the origin after the scan is not staged"""
    under(
        """
plain = {**os.environ, "MONARCH_STAGING_DISABLE": "1"}
plain.pop("LD_PRELOAD")
change = f"printf changed >> '{D}/spare.bin'"
subprocess.run(["sh", "-c", change], env=plain, check=True)
with open(D + "/spare.bin", "rb") as file:
    assert not tier(file.fileno()) and file.read().endswith(b"changed")
assert os.stat(D + "/spare.bin").st_size == 10_007
""",
        "--set",
        "fill.enabled=false",
    )


def test_large_file_that_is_mapped(under: Under, tree: Path) -> None:
    """a large file that is mapped, or opened by fopen, is staged before the call
    returns"""
    (tree / "shard.npy").write_bytes(os.urandom(9 << 20))
    under(
        """
with open(D + "/shard.npy", "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert D + "/shard.npy" not in open("/proc/self/maps").read()
assert redirected(D + "/shard.npy")
libc.fopen((D + "/shard.bin").encode(), b"rb")
assert redirected(D + "/shard.bin")
""",
        *("--set", "fill.enabled=false"),
    )


def test_local_failure(under: Under) -> None:
    """an open never fails because of Monarch"""
    under("""
fd = os.open(D + "/a.bin", os.O_RDONLY)
plain = {**os.environ, "MONARCH_STAGING_DISABLE": "1"}
plain.pop("LD_PRELOAD")
subprocess.run(["rm", "-f", os.readlink(f"/proc/self/fd/{fd}")], env=plain, check=True)
with open(D + "/a.bin", "rb") as file:
    assert file.read(3) == bytes(range(3))
""")


def test_scrubbed_environment(under: Under) -> None:
    """a child with a scrubbed environment stays under Monarch"""
    under("""
child = ["/bin/sh", "-c", 'exec 3<"$0"; readlink /proc/self/fd/3', D + "/a.bin"]
grep = 'exec 3<"$0"; readlink /proc/self/fd/3 | grep -q /monarch-'
path = {"PATH": "/usr/bin:/bin"}
def seen(environment):
    return subprocess.run(child, env=environment, capture_output=True, text=True).stdout
assert "/monarch-" in seen({}) and "/monarch-" in seen(path)
assert "/monarch-" not in seen({**path, "MONARCH_STAGING_DISABLE": "1"})
spawned = os.posix_spawn("/bin/sh", ["sh", "-c", grep, D + "/a.bin"], path)
assert os.waitpid(spawned, 0)[1] == 0
""")


STATIC_C = """
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    char byte, name[64], target[4096];
    int fd = argc > 1 ? open(argv[1], O_RDONLY) : -1;
    if (fd < 0 || read(fd, &byte, 1) != 1)
        return 1;
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(name, target, sizeof(target) - 1);
    return n <= 0 || write(1, target, n) != n;
}
"""


def test_not_covered(
    tree: Path, tmp_path: Path, line: Callable[..., list[str]]
) -> None:
    """static, setuid and Go programs, raw system calls and RTLD_DEEPBIND libraries
    read the origin
    """
    (tmp_path / "s.c").write_text(STATIC_C)
    program = tmp_path / "static"
    subprocess.run(
        ["cc", "-static", "-o", program, tmp_path / "s.c"], check=True, timeout=60
    )
    report = tmp_path / "report.json"
    shell = f"cat {tree}/a.bin | cmp - {tree}/a.bin; exec {program} {tree}/a.bin"
    done = subprocess.run(
        line("sh", "-c", shell, options=("--report", str(report))),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == str(tree / "a.bin")
    assert str(program) in report.read_text()


@pytest.mark.root
def test_other_root(under: Under) -> None:
    """chroot, unshare, setns and pivot_root end serving in that process"""
    under("""
assert redirected(D + "/a.bin")
pid = os.fork()
if pid == 0:
    os.chroot("/")
    os._exit(redirected(D + "/a.bin"))
assert os.waitpid(pid, 0)[1] == 0
pid = os.fork()
if pid == 0:
    assert libc.unshare(0x00020000) == 0
    os._exit(redirected(D + "/a.bin"))
assert os.waitpid(pid, 0)[1] == 0
hidden = ["unshare", "-m", "sh", "-c",
    f"mount -t tmpfs t '{D}' && echo other >'{D}/a.bin' && cat '{D}/a.bin'"]
assert subprocess.run(hidden, capture_output=True).stdout == b"other\\n"
""")


@pytest.mark.root
def test_rights(under: Under, tree: Path) -> None:
    """nothing is served that the process could not read at the origin"""
    os.chown(tree / "spare.bin", 1, 1)
    (tree / "spare.bin").chmod(0o600)
    under("""
assert redirected(D + "/spare.bin")
less = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "cat", D + "/spare.bin"]
done = subprocess.run(less, capture_output=True)
assert (done.returncode, done.stdout) == (1, b""), done
libc.setfsuid(2)
try:
    sys.exit(f"given, redirected: {redirected(D + '/spare.bin')}")
except PermissionError:
    pass
""")


@pytest.mark.root
def test_mounts(under: Under, tree: Path) -> None:
    """a mount below or above a root is seen by the processes whose paths it covers"""
    under("""
assert redirected(D + "/sub/b.bin")
other = os.path.dirname(D) + "/other"
os.mkdir(other)
open(other + "/b.bin", "w").write("other")
bind = ["mount", "--bind", other, D + "/sub"]
private = ["unshare", "-m", "sh", "-c", f"{' '.join(bind)}; cat {D}/sub/b.bin"]
assert subprocess.run(private, capture_output=True).stdout == b"other"
assert redirected(D + "/sub/b.bin")
subprocess.run(bind, check=True)
try:
    assert open(D + "/sub/b.bin").read() == "other"
    assert redirected(D + "/a.bin")
finally:
    subprocess.run(["umount", D + "/sub"], check=True)
assert redirected(D + "/sub/b.bin")
""")


def test_locks(under: Under) -> None:
    """locks taken on a redirected descriptor lock the local copy"""
    under("""
first, second = (os.open(D + "/a.bin", os.O_RDONLY) for _ in range(2))
fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
try:
    fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    pass
else:
    raise AssertionError
assert not redirected(D + "/x.lock")
""")


def test_copy_file_range(under: Under) -> None:
    """copy_file_range from a redirected descriptor works across file systems"""
    under("""
source = os.open(D + "/a.bin", os.O_RDONLY)
assert tier(source)
target = os.open(D + "/../copy", os.O_RDWR | os.O_CREAT)
copied = 0
while n := os.copy_file_range(source, target, 1 << 20):
    copied += n
assert copied == 102400 and os.pread(target, 1 << 20, 0) == bytes(range(256)) * 400
within = os.open(D + "/a.bin", os.O_RDWR)
try:
    os.copy_file_range(source, within, 2000, 0, 100)
except OSError as error:
    assert error.errno == errno.EINVAL
else:
    raise AssertionError
assert os.copy_file_range(source, within, 2000, 0, 50000) == 2000
assert os.pread(within, 2000, 50000) == (bytes(range(256)) * 8)[:2000]
""")


def test_names_of_descriptors(under: Under, tree: Path) -> None:
    """fstatfs, ioctl and /proc/self/fd show the Tier"""
    under("""
fd = os.open(D + "/a.bin", os.O_RDONLY)
assert tier(fd)
again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
assert not tier(again)
os.write(again, b"ORIGIN")
assert os.pread(fd, 6, 0) == bytes(range(6))
""")
    assert (tree / "a.bin").read_bytes()[:6] == b"ORIGIN"


def test_immutable(under: Under) -> None:
    """a Replica is never changed in place"""
    under("""
fd = os.open(D + "/a.bin", os.O_RDONLY)
replica = os.readlink(f"/proc/self/fd/{fd}")
pages = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
libc.syscall.restype = ctypes.c_long
assert os.stat(replica).st_mode & 0o777 == 0o400
with open(D + "/a.bin", "r+b") as file:
    file.truncate(0)
os.unlink(replica)
assert pages[:] == bytes(range(256)) * 400 and os.pread(fd, 3, 0) == bytes(range(3))
""")


def test_cleared_tier(under: Under, tree: Path) -> None:
    """deleting a Tier's directory loses no data"""
    before = (tree / "a.bin").read_bytes()
    under("""
fd = os.open(D + "/a.bin", os.O_RDONLY)
assert tier(fd)
place = os.path.dirname(os.readlink(f"/proc/self/fd/{fd}"))
subprocess.run(["find", place, "-type", "f", "-delete"], check=True)
with open(D + "/a.bin", "rb") as file:
    assert file.read() == os.pread(fd, 1 << 20, 0)
""")
    assert (tree / "a.bin").read_bytes() == before


def test_no_descriptors(under: Under) -> None:
    """Monarch keeps no descriptor in a program"""
    under("""
assert redirected(D + "/a.bin")
listing = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
assert sorted(map(int, os.listdir(listing)))[:4] == [0, 1, 2, listing]
os.closerange(3, 256)
assert redirected(D + "/sub/b.bin")
assert len(os.listdir("/proc/self/task")) == 1
""")


def test_errno(under: Under) -> None:
    """errno, cancellation points and signal dispositions are the program's own"""
    under("""
ctypes.set_errno(77)
fd = libc.open((D + "/a.bin").encode(), os.O_RDONLY)
assert tier(fd) and ctypes.get_errno() == 77
assert libc.open((D + "/none").encode(), os.O_RDONLY) == -1
assert ctypes.get_errno() == errno.ENOENT
status = open("/proc/self/status").read()
assert "SigCgt:\\t0000000000000002" in status  # Python's own SIGINT and nothing more
""")


VFORK_C = """
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    pid_t pid = vfork();
    if (pid == 0) {
        char byte;
        int fd = open(argv[argc - 1], O_RDONLY);
        _exit(fd < 0 || read(fd, &byte, 1) != 1);
    }
    int status = 0;
    return waitpid(pid, &status, 0) != pid || status;
}
"""


def test_vfork(tree: Path, tmp_path: Path, line: Callable[..., list[str]]) -> None:
    """a vfork child never waits"""
    (tmp_path / "v.c").write_text(VFORK_C)
    program = tmp_path / "vforks"
    subprocess.run(["cc", "-o", program, tmp_path / "v.c"], check=True, timeout=60)
    report = tmp_path / "report.json"
    options = ("--report", str(report), "--set", "fill.enabled=false")
    done = subprocess.run(
        line(str(program), str(tree / "a.bin"), options=options),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    again = subprocess.run(
        [sys.executable, "-c", "import sys; sys.exit('vfork' not in sys.stdin.read())"],
        input=report.read_text(),
        text=True,
    )
    assert again.returncode == 0, report.read_text()
