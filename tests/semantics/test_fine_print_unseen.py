"""Fine print on writes that are not seen: each sentence is true."""

import ctypes
import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.countfs import CountFs

Under = Callable[..., None]
Program = Callable[..., Path]
NOBODY = 65534

# The contents of a staged file before and after an unseen change.
OLD = """
FILE = D + "/spare.bin"
def check():
    with open(FILE, "rb") as file:
        assert tier(file.fileno()) and file.read() == b"s" * 10_000
    assert os.stat(FILE).st_size == 10_000
check()
"""


def unseen(under: Under, tree: Path, body: str) -> None:
    """Runs a writer to FILE, which must show its old bytes afterwards."""
    under(f"{OLD}{body}\ncheck()")
    assert (tree / "spare.bin").read_bytes() != b"s" * 10_000


def setuid(program: Program, tree: Path, _: Path) -> list[str]:
    """A program that runs as another user than the one that starts it."""
    writer = program("unseen.c")
    os.chown(writer, NOBODY, NOBODY)
    writer.chmod(0o4755)
    (tree / "spare.bin").chmod(0o666)
    return [str(writer), "libc"]


def contained(_: Program, __: Path, run_root: Path) -> list[str]:
    """A program in a mount namespace that lacks the run directory."""
    hide = f'mount -t tmpfs none {run_root} && exec sh -c \'printf NEW >"$0"\' "$0"'
    return ["unshare", "-m", "sh", "-c", hide]


def ring(program: Program, _: Path, __: Path) -> list[str]:
    """A program that has the kernel open the file by io_uring."""
    file = Path("/proc/sys/kernel/io_uring_disabled")
    if not file.exists() or file.read_text().strip() != "0":
        pytest.skip("needs io_uring")
    return [str(program("unseen.c")), "ring"]


def narrow(program: Program, _: Path, __: Path) -> list[str]:
    """A 32-bit program."""
    probe = ["cc", "-m32", "-x", "c", "-o", os.devnull, "-"]
    code = '#include <stdio.h>\nint main(void) { return puts(""); }'
    done = subprocess.run(probe, input=code, text=True, stderr=subprocess.DEVNULL)
    if done.returncode:
        pytest.skip("the compiler makes no 32-bit programs")
    return [str(program("unseen.c", "-m32")), "libc"]


# A Go program is static, or makes raw system calls.
PROGRAMS: dict[str, Callable[[Program, Path, Path], list[str]]] = {
    "static": lambda program, _, __: [str(program("unseen.c", "-static")), "libc"],
    "setuid": setuid,
    "32-bit": narrow,
    "container": contained,
    "raw": lambda program, _, __: [str(program("unseen.c")), "raw"],
    "io_uring": ring,
    "disabled": lambda program, _, __: [
        *("env", "MONARCH_STAGING_DISABLE=1", str(program("unseen.c")), "libc")
    ],
}


@pytest.mark.parametrize("way", PROGRAMS)
def test_programs_without_monarch(
    under: Under, tree: Path, program: Program, run_root: Path, way: str
) -> None:
    """Programs without Monarch: static, setuid, 32-bit and Go programs, containers
    without the run directory, `MONARCH_STAGING_DISABLE=1`

    Calls that bypass the Shim: raw system calls, io_uring
    """
    if way in ("setuid", "container") and os.geteuid() != 0:
        pytest.skip("needs root")
    words = PROGRAMS[way](program, tree, run_root)
    # By the working directory, because another user may not enter the path from above.
    run = f"subprocess.run([*{words}, 'spare.bin'], cwd=D, check=True, stderr=-3)"
    unseen(under, tree, run)


def test_the_same_program_is_seen_with_monarch(under: Under, program: Program) -> None:
    under(f"""{OLD}
subprocess.run([{str(program("unseen.c"))!r}, "libc", FILE], check=True)
assert not redirected(FILE)
""")


WAYS = {
    "deepbind": """
words = (ctypes.c_char_p * 3)(b"unseen", b"libc", FILE.encode())
library = ctypes.CDLL(LIBRARY, os.RTLD_NOW | os.RTLD_DEEPBIND)
assert library.main(3, words) == 0
""",
    "dlmopen": """
words = (ctypes.c_char_p * 3)(b"unseen", b"libc", FILE.encode())
libc.dlmopen.restype = ctypes.c_void_p
handle = libc.dlmopen(ctypes.c_long(-1), LIBRARY.encode(), os.RTLD_NOW)
assert ctypes.CDLL(LIBRARY, handle=handle).main(3, words) == 0
""",
    "libc": """
os.write(ctypes.CDLL("libc.so.6").open(FILE.encode(), os.O_WRONLY), b"NEW")
""",
    "outside": """
import socket
ours, theirs = socket.socketpair()
code = (
    "import os, socket, sys\\n"
    "fd = os.open(sys.argv[2], os.O_WRONLY)\\n"
    "end = socket.socket(fileno=int(sys.argv[1]))\\n"
    "socket.send_fds(end, [b'x'], [fd])\\n"
)
env = {**os.environ, "MONARCH_STAGING_DISABLE": "1", "LD_PRELOAD": ""}
words = [sys.executable, "-c", code, str(theirs.fileno()), FILE]
subprocess.run(words, env=env, pass_fds=[theirs.fileno()], check=True)
os.write(socket.recv_fds(ours, 1, 1)[1][0], b"NEW")
""",
    "utmp": """
libc.updwtmp(FILE.encode(), bytes(384))
""",
    # In its own PID namespace: the accounting of others stays as it is.
    "acct": """
code = (
    "import ctypes, os, sys; acct = ctypes.CDLL(None).acct\\n"
    "assert acct(sys.argv[1].encode()) == 0\\n"
    "os.system('true'); acct(None)\\n"
)
subprocess.run(["unshare", "-pf", sys.executable, "-c", code, FILE], check=True)
""",
    "gmon.out": """
os.makedirs(D + "-out"); os.chdir(D + "-out")
plain("ln", FILE, "gmon.out")
libc.monstartup(ctypes.c_ulong(0x1000), ctypes.c_ulong(0x2000))
libc._mcleanup()
plain("test", "-s", "gmon.out")
""",
    "fanotify": """
fan = libc.fanotify_init(0, os.O_WRONLY)
mark = libc.fanotify_mark
mark.argtypes = [*[ctypes.c_uint] * 2, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p]
assert mark(fan, 1, 0x20, -100, FILE.encode()) == 0
plain("cat", FILE)
event = os.read(fan, 24)
os.write(int.from_bytes(event[16:20], "little"), b"NEW")
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_other_ways(under: Under, tree: Path, program: Program, way: str) -> None:
    """functions found in libc itself (`dlsym` on a handle of `libc.so.6`,
    `RTLD_DEEPBIND`, `dlmopen`), descriptors from outside the job

    Writes of the system for a program: utmp, acct, fanotify, `gmon.out`
    """
    if way in ("acct", "fanotify") and os.geteuid() != 0:
        pytest.skip("needs root")
    if way == "acct":
        need_accounting()
    library = program("unseen.c", "-shared", "-fPIC")
    unseen(under, tree, WAYS[way].replace("LIBRARY", repr(str(library))))


def test_core_dump_over_a_file(under: Under, tree: Path) -> None:
    """core dumps"""
    if Path("/proc/sys/kernel/core_pattern").read_text().strip() != "core":
        pytest.skip("needs core dumps in the working directory")
    (tree / "core").write_bytes(b"s" * 10_000)
    crash = "import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (-1, -1));"
    crash += "os.abort()"

    under(
        f"""
def check():
    with open(D + "/core", "rb") as file:
        assert tier(file.fileno()) and file.read() == b"s" * 10_000
check()
subprocess.run([sys.executable, "-c", {crash!r}], cwd=D)
check()
"""
    )

    assert (tree / "core").read_bytes()[:4] == b"\x7fELF"


def need_accounting() -> None:
    """Skips where the kernel does not account for processes."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.acct(b"/none/none")
    if ctypes.get_errno() != errno.ENOENT:
        pytest.skip("needs acct()")


def test_link_led_elsewhere_and_back(
    under: Under, tree: Path, program: Program
) -> None:
    """A call through a link outside the dataset that another process retargets and
    restores meanwhile counts for the link's target before and after the call
    """
    link, tracer = tree.parent / "link", program("led_back.c")
    link.symlink_to(tree / "spare.bin")
    under(f"""
away = D + "/sub/b.bin"
assert redirected(D + "/spare.bin") and redirected(away)
words = [{str(tracer)!r}, {str(link)!r}, away, D + "/spare.bin"]
subprocess.run(words, check=True)
assert not redirected(D + "/spare.bin")
assert redirected(away) and os.stat(away).st_size == 50_000
""")
    assert (tree / "spare.bin").stat().st_size == 10_000
    assert (tree / "sub" / "b.bin").stat().st_size == 5


@pytest.mark.root
@pytest.mark.parametrize("by", ["outside", "static"])
def test_mount_from_outside(
    under: Under, tree: Path, program: Program, by: str
) -> None:
    """A mount by a static program, or one outside the job, is seen by programs that
    start after it in another mount namespace. In the agent's own it is not seen
    """
    mounter = [str(program("unseen.c", "-static")), "mount"]
    run = {"outside": "plain(*mounter, D)", "static": "subprocess.run([*mounter, D])"}
    (tree.parent / "other").mkdir()
    (tree.parent / "other" / "b.bin").write_text("other")
    under(f"""
mounter = {mounter!r}
def shown(*before):
    return subprocess.check_output([*before, "head", "-c1", D + "/sub/b.bin"])
assert redirected(D + "/sub/b.bin")
{run[by]}
try:
    assert plain("head", "-c1", D + "/sub/b.bin") == b"o"
    assert redirected(D + "/sub/b.bin") and shown() == b"b"
    assert shown("unshare", "-m") == b"o"
finally:
    subprocess.run(["umount", D + "/sub"], check=True)
""")


MAPPING = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
with open("/proc/self/maps") as maps:
    print(len(mapped), sys.argv[1] in maps.read())
"""


def test_library_that_replaces_mmap(under: Under, program: Program) -> None:
    """A library in `LD_PRELOAD` that replaces `mmap`, such as tcmalloc, maps large
    files at the origin
    """
    library = str(program("../native/shim/maps_itself.c", "-shared", "-fPIC"))
    under(
        f"""
def at_origin(**more):
    words = [sys.executable, "-c", {MAPPING!r}, D + "/shard.bin"]
    shown = subprocess.check_output(words, env={{**os.environ, **more}}, text=True)
    return shown == f"{{9 << 20}} True\\n"
assert at_origin(LD_PRELOAD={library!r})
assert not at_origin()
""",
        "--set",
        "fill.enabled=false",
    )


def test_raw_status_of_a_redirected_descriptor(under: Under) -> None:
    """A raw `fstat` or `statx` system call (Node.js) on a redirected descriptor shows
    the Replica
    """
    under(
        """
import platform
number = {"x86_64": 5, "aarch64": 80}[platform.machine()]
fd = os.open(D + "/spare.bin", os.O_RDONLY)
assert tier(fd)
raw = ctypes.create_string_buffer(256)
assert libc.syscall(ctypes.c_long(number), ctypes.c_long(fd), raw) == 0
(ino,) = __import__("struct").unpack_from("Q", raw, 8)
assert ino == os.stat(f"/proc/self/fd/{fd}").st_ino or ino != os.fstat(fd).st_ino
assert ino != os.fstat(fd).st_ino
"""
    )


def test_other_mount(
    under: Under, tree: Path, mount_counted: Callable[..., CountFs]
) -> None:
    """Other names: a mount of the same files with another device number"""
    other = mount_counted(tree, writable=1).root

    unseen(under, tree, f"open({str(other / 'spare.bin')!r}, 'r+b').write(b'NEW')")


def test_other_name_without_link_counts(
    under: Under, tree: Path, mount_counted: Callable[..., CountFs]
) -> None:
    """any name on FUSE without link counts"""
    os.link(tree / "spare.bin", tree / "name.bin")
    root = mount_counted(tree, no_links=1, writable=1).root

    unseen_below(under, tree, root, "name.bin")


def test_other_case(
    under: Under, tree: Path, mount_counted: Callable[..., CountFs]
) -> None:
    """a name in other letters where case is ignored"""
    root = mount_counted(tree, no_links=1, fold=1, writable=1).root

    unseen_below(under, tree, root, "SPARE.bin")


def unseen_below(under: Under, tree: Path, root: Path, name: str) -> None:
    """Writes to the file by another of its names below a mounted root."""
    write = f"open(D + '/{name}', 'r+b').write(b'NEW')"

    under(f"D = {str(root)!r}\n{OLD}{write}\ncheck()", data=("--data", str(root)))

    assert (tree / "spare.bin").read_bytes() != b"s" * 10_000
