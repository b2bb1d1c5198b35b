"""Fine print on Tiers and roots that fail: each sentence is true."""

import errno
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import countfs
from support.countfs import CountFs


@pytest.mark.root
def test_noexec(
    tree: Path, run_root: Path, monarch_command: Path, tmp_path: Path
) -> None:
    """A tier that is mounted noexec lets no Replica be mapped for execution"""
    place = tmp_path / "noexec"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "none", place], check=True)
    script = (
        "import mmap, os, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDONLY)\n"
        "assert '/monarch-' in os.readlink(f'/proc/self/fd/{fd}')\n"
        "mmap.mmap(fd, 4096, prot=mmap.PROT_READ)\n"
        "try: mmap.mmap(fd, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_EXEC)\n"
        "except PermissionError: print('refused')\n"
    )
    try:
        run = [str(monarch_command), "run", "-q", "--data", str(tree)]
        run += ["--tier", f"ram:1MiB:{place}", "--set", "cold_open.mode=wait", "--"]
        command = [*run, sys.executable, "-c", script, str(tree / "a.bin")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    finally:
        subprocess.run(["umount", "-l", place], check=True)

    assert done.stdout == "refused\n", done.stderr


@pytest.fixture
def medium(tmp_path: Path) -> Iterator[CountFs]:
    """A file system for a Tier that fails and hangs on command."""
    if lack := countfs.missing():
        pytest.skip(lack)
    program = countfs.build(countfs.SOURCE.with_name("tierfs.c"))
    for name in ("medium", "mounted"):
        (tmp_path / name).mkdir()
    with countfs.mounted(program, tmp_path / "medium", tmp_path / "mounted") as mount:
        yield mount
        mount.set(eio=0)


OPENED = """
import mmap, os, sys
first, second = sys.argv[1:]
def tell(*words):
    print(*words, flush=True)
    sys.stdin.readline()
def tier(fd):
    return "/monarch-" in os.readlink(f"/proc/self/fd/{fd}")
os.close(os.open(second, os.O_RDONLY))
fd = os.open(first, os.O_RDONLY)
pages = mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
tell(tier(fd))
with open(second) as file:
    tell(file.read(3))
try:
    os.read(fd, 10)
except OSError as error:
    number = error.errno
pid = os.fork()
if pid == 0:
    pages[50_000]
    os._exit(0)
tell(number, os.waitpid(pid, 0)[1])
"""


def test_errors_and_delays(
    tree: Path, run_root: Path, monarch_command: Path, medium: CountFs
) -> None:
    """An error under a file that was open or mapped already reaches the program, and an
    open that the tier never answers waits as long as the tier does
    """
    run = [str(monarch_command), "run", "-q", "--data", str(tree)]
    run += ["--tier", f"ssd:8MiB:{medium.root}", "--set", "cold_open.mode=wait", "--"]
    files = [str(tree / "a.bin"), str(tree / "spare.bin")]
    with subprocess.Popen(
        [*run, sys.executable, "-c", OPENED, *files],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        lines = [process.stdout.readline()]
        medium.set(stall="all")
        print(file=process.stdin, flush=True)
        answered = select.select([process.stdout], [], [], 1.5)[0]
        medium.set(stall="")
        lines.append(process.stdout.readline())
        medium.set(eio=1)
        print(file=process.stdin, flush=True)
        lines.append(process.stdout.readline())
        process.communicate("\n", timeout=60)

    assert lines == ["True\n", "sss\n", f"{errno.EIO} {signal.SIGBUS.value}\n"]
    assert not answered


HUNG = """
control = os.open(D + "/.control", os.O_WRONLY)
def stall(name):
    os.write(control, f"stall={name}\\n".encode())
def waits(name):
    # How long an open waits for a copy, before it waits for the origin.
    begun = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os._exit(not os.open(D + "/" + name, os.O_RDONLY))
    while (seen := open(f"/proc/{pid}/wchan").read()) != "request_wait_answer":
        assert time.monotonic() < begun + 10, seen
        time.sleep(0.01)
    took = time.monotonic() - begun
    stall("")
    assert os.waitpid(pid, 0)[1] == 0
    return took
stall("spare")
first = waits("spare.bin")
while not redirected(D + "/one-name.bin"):
    time.sleep(0.01)
stall("b.bin")
second = waits("sub/b.bin")
assert 0.9 < first < 3 and 1.3 * first < second < 6, (first, second)
"""


def test_hung_root(
    tree: Path, under: Callable[..., None], mount_counted: Callable[[Path], CountFs]
) -> None:
    """its opens go to the origin after 1 s without an answer, or twice its longest
    answer so far, at most 4 s, and then last as long as the origin takes
    """
    (tree / "one-name.bin").write_bytes(b"FUSE: only files with one name are served")
    root = mount_counted(tree).root
    data = ("--data", str(root))
    body = f"D = {str(root)!r}\n{HUNG}"
    under(body, "--set", "fill.enabled=false", data=data)


def test_landlock(under: Callable[..., None]) -> None:
    """Landlock rules that a process sets for itself do not apply to staged files"""
    under("""
fd = os.open(D + "/spare.bin", os.O_RDONLY)
assert tier(fd)
tiers = os.open(os.path.dirname(os.readlink(f"/proc/self/fd/{fd}")), os.O_PATH)
rules = libc.syscall(444, (ctypes.c_uint64 * 1)(1 << 2), 8, 0)  # reading of files
if rules < 0:
    sys.exit()
class Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("access", ctypes.c_uint64), ("parent", ctypes.c_int32)]
assert libc.syscall(445, rules, 1, ctypes.byref(Beneath(1 << 2, tiers)), 0) == 0
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.syscall(446, rules, 0) == 0
assert tier(os.open(D + "/spare.bin", os.O_RDONLY))
try:
    os.open(D + "/x.lock", os.O_RDONLY)
except PermissionError:
    pass
else:
    raise AssertionError
""")
