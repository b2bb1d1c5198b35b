"""Modes, owners, times and extended attributes, changed by every call of libc."""

import ctypes
import os

from support.adversary import tree
from support.adversary.links import checked, moved_name
from support.adversary.play import Play, operation
from support.adversary.truth import AT_FDCWD, LIBC, OLD_NS

NOFOLLOW = 0x100
Times = ctypes.c_long * 4


def some_times(play: Play) -> "ctypes.Array[ctypes.c_long]":
    """Access and write time, long ago; the second halves suit both units."""
    seconds = play.random.randrange(1_500_000_000, OLD_NS // 10**9)
    return Times(seconds, 1000, seconds, 2000)


def by_chmod(play: Play, path: str) -> None:
    os.chmod(path, play.pick((0o600, 0o644, 0o755, 0o000)))


def by_chmod_at(play: Play, path: str) -> None:
    mode, flags = play.pick((0o600, 0o444)), play.pick((0, 0, NOFOLLOW))
    checked(LIBC.fchmodat(AT_FDCWD, os.fsencode(path), mode, flags))


def by_fchmod(play: Play, path: str) -> None:
    with open(path, "rb") as file:
        os.fchmod(file.fileno(), play.pick((0o640, 0o700)))


def by_chown(play: Play, path: str) -> None:
    play.need("root")
    call = play.pick(("chown", "lchown"))
    checked(getattr(LIBC, call)(os.fsencode(path), play.pick((0, 12)), 34))


def by_chown_at(play: Play, path: str) -> None:
    play.need("root")
    flags = play.pick((0, NOFOLLOW))
    checked(LIBC.fchownat(AT_FDCWD, os.fsencode(path), 56, -1, flags))


def by_fchown(play: Play, path: str) -> None:
    play.need("root")
    with open(path, "rb") as file:
        os.fchown(file.fileno(), 78, 9)


def by_times(play: Play, path: str) -> None:
    call = getattr(LIBC, play.pick(("utime", "utimes", "lutimes")))
    checked(call(os.fsencode(path), some_times(play)))


def by_times_at(play: Play, path: str) -> None:
    if play.pick((True, False)):
        checked(LIBC.futimesat(AT_FDCWD, os.fsencode(path), some_times(play)))
        return
    flags = play.pick((0, NOFOLLOW))
    checked(LIBC.utimensat(AT_FDCWD, os.fsencode(path), some_times(play), flags))


def by_times_of_descriptor(play: Play, path: str) -> None:
    call = getattr(LIBC, play.pick(("futimes", "futimens")))
    with open(path, "rb") as file:
        checked(call(file.fileno(), some_times(play)))


def by_touch(play: Play, path: str) -> None:
    os.spawnlp(os.P_WAIT, "touch", "touch", "-d", "@1500000000", path)


def by_attribute(play: Play, path: str) -> None:
    os.setxattr(path, "user.mark", play.payload()[:20], follow_symlinks=True)


def by_attribute_of_descriptor(play: Play, path: str) -> None:
    with open(path, "rb") as file:
        os.setxattr(file.fileno(), "user.mark", play.payload()[:20])
        value = os.getxattr(file.fileno(), "user.mark")
        play.say(f"{os.listxattr(file.fileno())} {value.hex()}")
        if play.pick((True, False)):
            os.removexattr(file.fileno(), "user.mark")


def by_removing_attribute(play: Play, path: str) -> None:
    os.removexattr(path, "user.mark")


WAYS = (
    *(by_chmod, by_chmod_at, by_fchmod, by_chown, by_chown_at, by_fchown, by_times),
    *(by_times_at, by_times_of_descriptor, by_touch, by_attribute),
    *(by_attribute_of_descriptor, by_removing_attribute),
)


@operation("attributes", 6)
def change(play: Play) -> str:
    """An attribute of a file is changed by one of its names."""
    path = play.path(tree.CATALOGUED if play.random.random() < 0.4 else ())
    play.way(WAYS)(play, path)
    return "done"


@operation("links", 4)
def change_by_link(play: Play) -> str:
    """The same by a name that passes a link."""
    path = play.path((*tree.LINKS, *tree.THROUGH))
    play.way(WAYS)(play, path)
    return "done"


@operation("links", 3)
def change_by_moved_link(play: Play) -> str:
    """The same by a link that leads elsewhere than at the start."""
    path = moved_name(play)
    play.way(WAYS)(play, path)
    return "done"


@operation("attributes", 1)
def change_folder(play: Play) -> str:
    """A directory changes."""
    path = play.path(tree.FOLDERS[:4])
    play.way((by_chmod, by_times, by_chown, by_attribute))(play, path)
    return "done"
