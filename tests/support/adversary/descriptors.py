"""Descriptors that outlive the names of their files, and their names in /proc."""

import ctypes
import errno
import mmap
import os
import subprocess
import sys

from support.adversary import tree, truth, writing
from support.adversary.attributes import some_times
from support.adversary.links import AT_EMPTY_PATH, by_rename, checked
from support.adversary.play import Held, Play, operation
from support.adversary.truth import LIBC

HELD_MAX = 4


@operation("descriptors", 8)
def hold(play: Play) -> str:
    """A file is opened for reading and kept open."""
    path = play.path((*tree.CATALOGUED, *tree.LINKS) if play.pick((0, 1)) else ())
    descriptor = os.open(path, os.O_RDONLY)
    raw = truth.raw_open(path)
    if os.path.isdir(path):
        os.close(descriptor)
        os.close(raw)
        return "a directory"
    identity = truth.raw_identity(f"/proc/self/fd/{raw}")
    names = play.names.get(identity, (os.path.realpath(path),))
    held = Held(descriptor, raw, path, truth.raw_read(path), names)
    slot = play.random.randrange(HELD_MAX)
    if slot in play.held:
        play.held[slot].close()
    play.held[slot] = held
    return "held"


def judge(held: Held, content: bytes, where: str) -> list[str]:
    """What is wrong with what a held descriptor, or a name of it, gives."""
    now = os.pread(held.raw, truth.BYTES_MAX, 0)
    if content == now or (held.redirected and content == held.content):
        return []
    short = [truth.digest(one) for one in (now, held.content, content)]
    return [f"bytes of {where}: {short[0]} or {short[1]}, not {short[2]}"]


@operation("descriptors", 2)
def read_held(play: Play) -> str:
    """The bytes and the status of a held descriptor."""
    held = play.some_held()
    content = os.pread(held.descriptor, truth.BYTES_MAX, 0)
    play.wrong += judge(held, content, f"held {held.name}")
    true = truth.raw_fstat(held.raw)
    shown = truth.shim_fields(os.fstat(held.descriptor))
    if play.pick((True, False)):
        shown = truth.statx_of_descriptor(held.descriptor)
    if held.redirected:
        # The size is that of the returned bytes.
        true, shown = (one[:5] + one[7:] for one in (true, shown))
    if held.lost:
        # A removed file has the identity of its copy: its own number is free.
        own = truth.raw_fstat(held.descriptor)
        if held.redirected and not true[1] and shown[4] == own[4] and not shown[1]:
            true = own
        true, shown = true[4:5] + true[-1:], shown[4:5] + shown[-1:]
    if true != shown:
        play.wrong.append(f"stat of held {held.name}: {true} {shown}")
    return "read"


def by_other_file(play: Play, name: str) -> None:
    os.rename(play.path(tree.CATALOGUED), name)


def by_new_file(play: Play, name: str) -> None:
    with open("../out/fresh", "wb") as file:
        file.write(play.payload())
    os.replace("../out/fresh", name)


def by_link(play: Play, name: str) -> None:
    by_rename(name, play.at(play.pick(tree.FILES)))


def by_nothing(play: Play, name: str) -> None:
    os.unlink(name)


def by_moving(play: Play, name: str) -> None:
    os.rename(name, play.path(tree.NEW))


TAKES = (by_other_file, by_other_file, by_new_file, by_link, by_nothing, by_moving)


@operation("descriptors", 6)
def take_name_of_held(play: Play) -> str:
    """The name of a held file is removed, or becomes that of another one."""
    held = play.some_held()
    play.lost = False
    name = play.random.choice(held.names)
    play.way(TAKES)(play, name)
    return "done"


def reopen_name(play: Play, descriptor: int) -> str:
    """One of the names that lead to a descriptor of this process."""
    names = (
        *(
            "/proc/self/fd/{0}",
            "/proc/self/fd/{0}",
            "/dev/fd/{0}",
            "//proc/self/fd/{0}",
        ),
        *("/./proc/self/fd/{0}", "/proc/{1}/fd/{0}", "/proc/thread-self/fd/{0}"),
        *("/proc/self/task/{1}/fd/{0}", "/proc/../proc/self/fd/{0}", "LINK", "CHILD"),
        *("/dev//fd/{0}", "/proc/self/root/proc/self/fd/{0}", "CWD", "RELATIVE"),
        *("/proc/self/cwd/../link", "ALIAS", "MAP"),
    )
    pattern = play.pick(names)
    plain = f"/proc/self/fd/{descriptor}"
    if pattern == "LINK":
        target = play.pick(("/proc/self/fd/{0}", "/dev/fd/{0}")).format(descriptor)
        os.symlink(target, "../out/fdlink")
        return "../out/fdlink"
    if pattern == "ALIAS":
        os.symlink("/proc/self/fd", "../out/fdlink")
        return f"../out/fdlink/{descriptor}"
    if pattern.endswith("/link"):
        os.symlink(plain, "../link")
        return "/proc/self/cwd/../link"
    if pattern == "MAP":
        return mapped_name(play, descriptor)
    if pattern == "CHILD":
        return f"/proc/{another(play)}/fd/{descriptor}"
    if pattern == "CWD":
        os.chdir("/proc/self/fd")
        return str(descriptor)
    if pattern == "RELATIVE":
        return os.path.relpath("/proc/self/fd") + f"/{descriptor}"
    return pattern.format(descriptor, os.getpid())


def mapped_name(play: Play, descriptor: int) -> str:
    """The name of a mapping of the file, which is left there."""
    try:
        play.maps.append(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    except ValueError:  # empty, or it was so when the descriptor was opened
        if not os.geteuid():
            return f"/proc/self/fd/{descriptor}"
        # The kernel refuses every name of a mapping (proc(5)): one of the interpreter.
        return name_of_mapping(os.stat(sys.executable).st_ino)
    return name_of_mapping(truth.raw_fstat(descriptor)[4])


def name_of_mapping(number: int) -> str:
    """The name of the last mapping of an inode."""
    inode = f" {number} "
    with open("/proc/self/maps", encoding="utf-8") as lines:
        spans = [line.split()[0] for line in lines if inode in line]
    first, last = (part.lstrip("0") for part in spans[-1].split("-"))
    return f"/proc/self/map_files/{first}-{last}"


def another(play: Play) -> int:
    """A process that has the same descriptors."""
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told)
        os.read(ready, 1)
        os._exit(0)
    os.close(ready)
    play.ends.append((told, child))
    return child


def reopen_and_change(play: Play, path: str) -> None:
    ways = (*writing.WAYS[:10], writing.by_open, writing.by_truncate)
    play.way(ways)(play, path)


def reopen_and_chmod(play: Play, path: str) -> None:
    os.chmod(path, play.pick((0o600, 0o640)))


def reopen_and_create(play: Play, path: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | play.pick((0, os.O_TRUNC))
    writing.fill(os.open(path, flags, 0o600), play.payload())


def reopen_and_set(play: Play, path: str) -> None:
    os.utime(path, (1_500_000_000, 1_500_000_001))


def reopen_and_label(play: Play, path: str) -> None:
    os.setxattr(path, "user.label", b"by another name")


REOPENS = (
    *(reopen_and_change, reopen_and_change, reopen_and_change, reopen_and_create),
    *(reopen_and_chmod, reopen_and_set, reopen_and_label),
)


def reopen_and_empty(play: Play, path: str) -> None:
    writing.fill(os.open(path, os.O_WRONLY | os.O_TRUNC), b"")


def reopen_and_cut(play: Play, path: str) -> None:
    os.truncate(path, 1)


LOST_CHANGES = (reopen_and_empty, reopen_and_cut, *REOPENS)


@operation("descriptors", 10)
def change_by_proc(play: Play) -> str:
    """A held file is changed by a name of its descriptor."""
    held = play.some_held()
    try:
        path = reopen_name(play, held.descriptor)
        play.way(REOPENS)(play, path)
    finally:
        restore(play)
    return "done"


LOST_NAMES = (
    "/proc/self/fd/{0}",
    "/dev/fd/{0}",
    "/proc/self/fd/{0}",
    "/proc/{1}/fd/{0}",
)


@operation("descriptors", 6)
def change_lost_by_proc(play: Play) -> str:
    """The same when the file has just lost its name; a new one stays as it is."""
    held = play.some_held()
    if not held.lost:
        play.way(TAKES)(play, play.random.choice(held.names))
    play.lost, play.middle = held.lost, play.look(False)
    path = play.pick(LOST_NAMES).format(held.descriptor, os.getpid())
    play.way(LOST_CHANGES)(play, path)
    return "done"


def read_anew(play: Play, path: str) -> bytes:
    flags = os.O_RDONLY | play.pick((0, os.O_APPEND, os.O_CREAT, os.O_DSYNC))
    with open(os.open(path, flags), "rb") as file:
        return file.read()


def read_stream(play: Play, path: str) -> bytes:
    stream = LIBC.fopen(os.fsencode(path), b"r")
    if not stream:
        raise OSError(ctypes.get_errno(), path)
    content = ctypes.create_string_buffer(truth.BYTES_MAX)
    count = LIBC.fread(content, 1, len(content), ctypes.c_void_p(stream))
    LIBC.fclose(ctypes.c_void_p(stream))
    return content.raw[:count]


def read_by_child(play: Play, path: str) -> bytes:
    words = [*play.pick((("cat", "{}"), ("cp", "{}", "/dev/stdout")))]
    words[1] = path
    done = subprocess.run(words, capture_output=True, check=False, close_fds=False)
    if done.returncode:
        raise OSError(errno.ESTALE, path)
    return done.stdout


@operation("descriptors", 4)
def read_by_proc(play: Play) -> str:
    """A held file is opened anew for reading by a name of its descriptor."""
    held = play.some_held()
    try:
        path = reopen_name(play, held.descriptor)
        own, named = os.fstat(held.descriptor), os.stat(path)
        content = play.way((read_anew, read_anew, read_stream, read_by_child))(
            play, path
        )
        now = os.pread(held.raw, truth.BYTES_MAX, 0)
        if content != now:
            told = f"{truth.digest(now)} {truth.digest(content)}"
            play.wrong.append(f"bytes of {path} of {held.name} anew: {told}")
        if not os.path.samestat(own, named):
            play.wrong.append(f"{path} of {held.name} is another file")
    finally:
        restore(play)
    return "read"


def restore(play: Play) -> None:
    """Takes back what a name needed."""
    os.chdir(play.ground.main)
    for name in ("../out/fdlink", "../link"):
        if os.path.lexists(name):
            os.unlink(name)
    while play.ends:
        told, child = play.ends.pop()
        os.close(told)
        os.waitpid(child, 0)


def set_mode(play: Play, descriptor: int) -> None:
    os.fchmod(descriptor, play.pick((0o600, 0o710)))


def set_owner(play: Play, descriptor: int) -> None:
    play.need("root")
    os.fchown(descriptor, 21, 22)


def set_times(play: Play, descriptor: int) -> None:
    os.utime(descriptor, (1_500_000_000, 1_500_000_002))


def set_label(play: Play, descriptor: int) -> None:
    os.setxattr(descriptor, "user.label", b"by descriptor")


def drop_label(play: Play, descriptor: int) -> None:
    os.removexattr(descriptor, "user.label")


def set_owner_by_empty_path(play: Play, descriptor: int) -> None:
    play.need("root")
    checked(LIBC.fchownat(descriptor, b"", 31, 32, AT_EMPTY_PATH))


def set_times_by_empty_path(play: Play, descriptor: int) -> None:
    times = some_times(play)
    checked(LIBC.utimensat(descriptor, b"", times, AT_EMPTY_PATH))


def set_times_by_no_path(play: Play, descriptor: int) -> None:
    checked(LIBC.futimesat(descriptor, None, some_times(play)))


SETS = (
    *(set_mode, set_owner, set_times, set_label, drop_label),
    *(set_owner_by_empty_path, set_times_by_empty_path, set_times_by_no_path),
)


@operation("descriptors", 4)
def change_held(play: Play) -> str:
    """An attribute is changed by a descriptor that was opened for reading."""
    held = play.some_held()
    play.way(SETS)(play, held.descriptor)
    return "done"


@operation("descriptors", 1)
def truncate_held(play: Play) -> str:
    """A descriptor that cannot write is refused."""
    result = LIBC.ftruncate(play.some_held().descriptor, ctypes.c_long(0))
    return "refused" if result < 0 else "cut"
