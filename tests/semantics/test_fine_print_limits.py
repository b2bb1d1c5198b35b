"""Fine print on odd programs and places: each sentence is true."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.shim_fixtures import Board

Under = Callable[..., None]
Line = Callable[..., list[str]]
Program = Callable[..., Path]
Tool = Callable[[str], str]
NOBODY = 65534


RIGHTS = """
FILE = D + "/a.bin"
def drop():
    head, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capset(head, sets) == 0
def shown(*words):
    script = 'exec 3<"$0"; exec readlink /proc/self/fd/3'
    return subprocess.check_output([*words, "sh", "-c", script, FILE]).decode()
assert "/monarch-" in shown() and redirected(D + "/other.bin")
for words in ("groups=2", "regid=2 keep-groups", "bounding-set=-all inh-caps=-all"):
    assert shown("setpriv", *("--" + word for word in words.split())) == FILE + "\\n"
os.chdir(D)  # since another user may not come here from above
changes = {
    "a.bin": drop,
    "spare.bin": lambda: os.setgid(2),
    "sub/b.bin": lambda: os.setgroups([2]),
    "small.bin": lambda: os.setuid(2),
}
for name, change in changes.items():
    pid = os.fork()
    if pid == 0:
        assert redirected(name)
        change()
        assert not redirected(name)
        with open(name, "r+b") as file:
            file.write(b"new")
        if os.geteuid() != 0:
            subprocess.run(["sh", "-c", "printf new >other.bin"], check=True, stderr=-3)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert not redirected(D + "/" + name)
assert redirected(D + "/other.bin") and plain("cat", D + "/other.bin") == b"new"
"""


@pytest.mark.root
def test_other_rights(under: Under, tree: Path) -> None:
    """After a change of ids, groups or file capabilities a process reads the origin
    only, as does one that starts with other ids or groups, or fewer of these
    capabilities, than the agent

    Its writes are marked. A program that it starts as another user cannot reach the run
    directory and is outside the job
    """
    for name in ("small.bin", "other.bin"):
        (tree / name).write_bytes(b"small")
    for name in ("a.bin", "spare.bin", "sub/b.bin", "small.bin", "other.bin"):
        (tree / name).chmod(0o666)
    under(RIGHTS)


@pytest.mark.root
def test_mount_below(under: Under, tree: Path) -> None:
    """Processes that see a mount on a catalogued name below a root ask the kernel at
    each open and stat below that root which file is meant
    """
    (tree.parent / "other").mkdir()
    under("""
code = '''
import os, sys
for _ in sys.stdin:
    with open(sys.argv[1]) as file:
        print(os.readlink(f"/proc/self/fd/{file.fileno()}"), flush=True)
'''
words = ["unshare", "-m", sys.executable, "-c", code, D + "/spare.bin"]
apart = subprocess.Popen(words, stdin=-1, stdout=-1, text=True)
def elsewhere():
    print(file=apart.stdin, flush=True)
    return "/monarch-" in apart.stdout.readline()
assert redirected(D + "/spare.bin")
plain("cp", D + "/spare.bin", D + "/../new")
plain("mv", D + "/../new", D + "/spare.bin")
def seen():
    real = int(plain("stat", "-c", "%i", D + "/spare.bin"))
    return os.stat(D + "/spare.bin").st_ino == real, not redirected(D + "/spare.bin")
assert seen() == (False, False) and elsewhere()
subprocess.run(["mount", "--bind", D + "/../other", D + "/sub"], check=True)
try:
    assert seen() == (True, True) and elsewhere()
finally:
    subprocess.run(["umount", D + "/sub"], check=True)
    apart.communicate()
assert redirected(D + "/a.bin")
""")


ALLOWED = [
    *(
        "statx",
        "readlinkat",
        "fcntl",
        "ftruncate",
        "getcwd",
        "getpid",
        "getuid",
        "geteuid",
    ),
    *("clock_gettime", "futex", "poll", "getegid", "getgroups", "capget"),
]


def test_seccomp(under: Under, tree: Path, program: Program) -> None:
    """A seccomp filter that kills on unexpected calls must allow, beside those of open,
    stat and close: statx, readlinkat, fcntl, ftruncate, getcwd, getpid, getuid and
    geteuid

    For the wait for a copy it must allow clock_gettime, futex and poll; in a child of
    fork also getegid, getgroups and capget
    """
    for number in range(len(ALLOWED) + 1):
        (tree / f"cold{number}").write_text("x")
    under(
        f"""
names = {ALLOWED}
os.chdir(D)
assert redirected("spare.bin") and redirected("sub/b.bin")
def run(number, allowed):
    files = f"cold{{number}}", f"made{{number}}"
    words = [{str(program("strict.c"))!r}, *files, *allowed]
    return subprocess.run(words).returncode
assert run(0, names) == 0
for number, name in enumerate(names, 1):
    assert run(number, [one for one in names if one != name]) != 0, name
""",
        *("--set", "fill.enabled=false", "--set", "cold_open.mode=wait"),
    )


def test_cancellation(board: Board, program: Program) -> None:
    """An open that waits for a Transfer acts on a thread's cancellation within 100
    ms
    """
    board.start("-n")
    cancel = program("cancel.c", "-pthread")

    shown = [int(board.run(cancel, board.root / "two.bin")) for _ in range(3)]

    assert min(shown) <= 100


def test_invalid_pointer(under: Under) -> None:
    """An invalid path pointer may crash the program where the kernel returns
    `EFAULT`
    """
    under("""
code = '''
import ctypes, errno, resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.open(ctypes.c_void_p(8), 0) == -1 and ctypes.get_errno() == errno.EFAULT
'''
plain(sys.executable, "-c", code)
assert subprocess.run([sys.executable, "-c", code]).returncode == -11
""")


def test_output_in_a_root(tree: Path, line: Line) -> None:
    """A file of a dataset that `monarch run` itself has open for writing (`monarch run
    ... > FILE`) is read from the origin for the whole job
    """
    shell = 'for f; do (exec >&2 3<"$f"; readlink /proc/self/fd/3); done'
    files = [str(tree / "spare.bin"), str(tree / "a.bin")]
    with open(tree / "spare.bin", "r+b") as output:
        done = subprocess.run(
            line("sh", "-c", f"({shell}) >/dev/null", "sh", *files),
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )

    first, second = done.stderr.splitlines()
    assert first == files[0]
    assert "/monarch-" in second


LIMITED = """
import resource
def limited(kib, *words):
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (kib << 10,) * 2)
    return subprocess.run(words, preexec_fn=limit, check=True, stdout=-1).stdout
show = 'exec 3<"$0"; exec readlink /proc/self/fd/3'
write = 'printf NEW >"$0"'
seen, unseen = D + "/spare.bin", D + "/sub/b.bin"
assert redirected(D + "/a.bin") and redirected(seen) and redirected(unseen)
assert limited(12_000, "sh", "-c", show, D + "/a.bin").decode() == D + "/a.bin\\n"
limited(12_000, "truncate", "-s", "5", seen)
limited(4_000, "sh", "-c", write, unseen)
assert not redirected(seen)
assert redirected(unseen) and plain("cat", unseen) == b"NEW"  # not active either
"""


def test_address_space(under: Under, tmp_path: Path) -> None:
    """With `ulimit -v`, a process reads the origin if the segments take more than an
    eighth of the limit; the report names it as not active. Its writes are seen, unless
    the segments do not fit
    """
    report = tmp_path / "report.json"

    under(LIMITED, "--report", str(report))

    rows = json.loads(report.read_text())["coverage"]["inactive"]
    inactive = {Path(row["program"]).name for row in rows}
    assert inactive == {"readlink", "truncate", "sh", "cat"}


def test_removed_directory(tree: Path, line: Line) -> None:
    """In a removed working directory, `monarch run` refuses relative paths only"""
    gone = 'mkdir gone; cd gone; rmdir ../gone; exec "$@"'

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        command = ["sh", "-c", gone, "sh", *line("true", data=words)]
        return subprocess.run(
            command, cwd=tree.parent, capture_output=True, text=True, timeout=60
        )

    assert run("--data", str(tree)).returncode == 0
    for relative in (["--data", "data"], ["--data", str(tree), "--report", "r.json"]):
        done = run(*relative)
        assert done.returncode == 2
        assert "/proc/the-removed-working-directory/" in done.stderr


def test_faketime(tree: Path, line: Line, tool: Tool) -> None:
    """Under `faketime`, the times of staged files are the origin's; Monarch keeps the
    kernel's time
    """
    code = "import os, sys, time; print(os.stat(sys.argv[1]).st_mtime, time.time())"
    words = [sys.executable, "-c", code, str(tree / "a.bin")]
    report = tree.parent / "report.json"
    ours = line(*words, options=("--report", str(report)))

    done = subprocess.run(
        [tool("faketime"), "-f", "+2d", *ours], capture_output=True, timeout=60
    )
    seen, now = map(float, done.stdout.split())

    assert seen == (tree / "a.bin").stat().st_mtime
    assert now > time.time() + 24 * 3600
    started_s = json.loads(report.read_text())["run"]["started_s"]
    assert abs(started_s - time.time()) < 3600


def test_dataset_of_a_library(tree: Path, line: Line, program: Program) -> None:
    """The agent starts without `LD_PRELOAD`: it does not see a dataset that only a
    preloaded library shows
    """
    library = program("shown.c", "-shared", "-fPIC", "-ldl")
    show = ["env", f"LD_PRELOAD={library}", f"SHOWN={tree}"]
    read = [sys.executable, "-c", "open('/shown/data/a.bin').close()"]
    data = ("--data", "/shown/data")

    plain = subprocess.run([*show, *read], capture_output=True, text=True)
    ours = subprocess.run(
        [*show, *line(*read, data=data)], capture_output=True, text=True, timeout=60
    )

    assert plain.returncode == 0, plain.stderr
    assert ours.returncode == 2
    assert "/shown/data does not exist" in ours.stderr
