"""Programs started with writable descriptors or file actions."""

import ctypes
import os
import subprocess
import time

from support.adversary import tree, truth
from support.adversary.play import Play, operation
from support.adversary.truth import LIBC
from support.adversary.writing import WRITABLE

SPAWN_FLAGS = (
    *(os.O_WRONLY, os.O_WRONLY | os.O_TRUNC, os.O_RDWR),
    *(os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
)
RAW_FLAGS = (
    os.O_WRONLY,
    os.O_RDWR,
    os.O_WRONLY | os.O_APPEND,
    os.O_WRONLY | os.O_TRUNC,
)
ACTIONS_BYTES = 256
PATIENCE_S = 5


@operation("children", 8)
def spawn_writing(play: Play) -> str:
    """A child's output is opened by posix_spawn, not by the parent."""
    path, flags = play.path(WRITABLE), play.pick(SPAWN_FLAGS)
    action = (os.POSIX_SPAWN_OPEN, 1, path, flags, 0o600)
    words = play.pick((("echo", "spawned"), ("sh", "-c", "echo shell"), ("true",)))
    spawn = play.way((os.posix_spawnp, os.posix_spawnp))
    child = spawn(words[0], words, os.environ, file_actions=[action])
    return str(os.waitpid(child, 0)[1])


@operation("children", 4)
def spawn_reopening(play: Play) -> str:
    """A child's output is opened by a name of a descriptor that it inherits."""
    descriptor = os.open(play.path(tree.CATALOGUED), os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    try:
        name = play.pick(("/dev/fd/{}", "/proc/self/fd/{}", "//dev/fd/{}"))
        flags = play.pick(SPAWN_FLAGS)
        action = (os.POSIX_SPAWN_OPEN, 1, name.format(descriptor), flags, 0o600)
        words = ("echo", "spawned by another name")
        child = os.posix_spawnp("echo", words, os.environ, file_actions=[action])
    finally:
        os.close(descriptor)
    return str(os.waitpid(child, 0)[1])


@operation("children", 4)
def spawn_writing_below(play: Play) -> str:
    """The same in C, relative to a directory that the child changes to."""
    name = play.pick(("f0", "f1"))
    folder = play.path(("a", "b", "cur", "exd", "outd", "../other"))
    name = play.pick(("g0", "g1")) if folder.endswith("other") else name
    actions = ctypes.create_string_buffer(ACTIONS_BYTES)
    LIBC.posix_spawn_file_actions_init(actions)
    add_folder = LIBC.posix_spawn_file_actions_addchdir_np
    add_folder(actions, os.fsencode(folder))
    add_open = LIBC.posix_spawn_file_actions_addopen
    flags = play.pick(SPAWN_FLAGS)
    add_open(actions, 1, os.fsencode(name), flags, 0o600)
    child = ctypes.c_int()
    words = (ctypes.c_char_p * 3)(b"echo", b"below", None)
    environ = ctypes.POINTER(ctypes.c_char_p).in_dll(LIBC, "environ")
    number = LIBC.posix_spawnp(
        ctypes.byref(child), b"echo", actions, None, words, environ
    )
    LIBC.posix_spawn_file_actions_destroy(actions)
    if number:
        raise OSError(number, os.strerror(number))
    return str(os.waitpid(child.value, 0)[1])


INHERITING = (
    ("echo", "inherited"),
    ("sh", "-c", "echo inherited"),
    ("sh", "-c", "sh -c 'echo twice inherited'"),
    ("sh", "-c", "exec 3>&1 1>/dev/null; echo three >&3"),
    ("python3", "-S", "-c", "print('inherited by an interpreter')"),
)


@operation("inherited", 6)
def child_inherits(play: Play) -> str:
    """A child gets a descriptor that nothing has seen being opened."""
    descriptor = truth.raw_open(play.path(WRITABLE), play.pick(RAW_FLAGS))
    try:
        words = play.pick(INHERITING[:4])
        done = subprocess.run(words, stdout=descriptor, check=False)
    finally:
        os.close(descriptor)
    return str(done.returncode)


@operation("inherited", 3)
def keep_child(play: Play) -> str:
    """The same, and the child lives on: it writes on command."""
    path = play.path(tree.CATALOGUED)
    descriptor = truth.raw_open(path, os.O_WRONLY | os.O_APPEND)
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=descriptor)
    play.children.append(child)
    play.kept[child.pid] = descriptor
    tell(play, child)
    return "kept"


@operation("inherited", 3)
def tell_child(play: Play) -> str:
    """A child that was kept writes again."""
    if not play.children:
        raise LookupError("no child")
    tell(play, play.random.choice(play.children))
    return "told"


def tell(play: Play, child: "subprocess.Popen[bytes]") -> None:
    """Makes a child write, and waits until it has."""
    descriptor = play.kept[child.pid]
    before = truth.raw_fstat(descriptor)[5]
    assert child.stdin is not None
    child.stdin.write(b"one more line\n")
    child.stdin.flush()
    deadline = time.monotonic() + PATIENCE_S
    while truth.raw_fstat(descriptor)[5] == before:
        assert time.monotonic() < deadline, "the child does not write"
        time.sleep(0.0005)


@operation("inherited", 6)
def write_inherited(play: Play) -> str:
    """The descriptor that was there from the start is written to."""
    if play.inherited < 0:
        raise LookupError("nothing inherited")
    if play.pick((True, False)):
        return str(os.write(play.inherited, play.payload()))
    words = ["sh", "-c", f"echo child >&{play.inherited}"]
    done = subprocess.run(words, pass_fds=[play.inherited], check=False)
    return str(done.returncode)


@operation("inherited", 1)
def cut_inherited(play: Play) -> str:
    """The same descriptor shortens its file."""
    os.ftruncate(play.inherited, play.pick((0, 7)))
    return "cut"


@operation("children", 2)
def read_in_child(play: Play) -> str:
    """A fresh program reads a file."""
    path = play.path()
    words = [*play.pick((("cat", "{}"), ("dd", "status=none", "if={}")))]
    words[-1] = words[-1].format(path)
    true = truth.look_raw(path)
    done = subprocess.run(words, capture_output=True, check=False)
    if isinstance(true.content, bytes) and true.content and done.stdout != true.content:
        short = truth.digest(true.content), truth.digest(done.stdout)
        play.wrong.append(f"bytes of {path} in a child: {short[0]} {short[1]}")
    return f"{done.returncode} {truth.digest(done.stdout)}"
