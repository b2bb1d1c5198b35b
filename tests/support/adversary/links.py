"""Links that are retargeted, in every way that a link can be replaced."""

import ctypes
import os
import subprocess

from support.adversary import tree
from support.adversary.play import OPERATIONS, Play, operation
from support.adversary.truth import AT_FDCWD, LIBC, attempt

RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
AT_SYMLINK_FOLLOW, AT_EMPTY_PATH = 0x400, 0x1000


def checked(result: int) -> str:
    """The result of a libc call through ctypes, as os would return it."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return "done"


def by_unlink(place: str, target: str) -> None:
    os.unlink(place)
    os.symlink(target, place)


def by_rename(place: str, target: str) -> None:
    os.symlink(target, place + ".tmp")
    os.rename(place + ".tmp", place)


def by_rename_from_outside(place: str, target: str) -> None:
    beside = os.path.join("..", "out", "tmp")
    os.symlink(target, beside)
    os.replace(beside, place)


def by_ln(place: str, target: str) -> None:
    subprocess.run(["ln", "-sfn", target, place], check=False, capture_output=True)


def exchange(one: str, two: str) -> str:
    """Two names change places."""
    names = (AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(two))
    return checked(LIBC.renameat2(*names, RENAME_EXCHANGE))


def by_exchange(place: str, target: str) -> None:
    beside = place + ".tmp"
    os.symlink(target, beside)
    try:
        exchange(beside, place)
    finally:
        os.unlink(beside)


def by_dir_fd(place: str, target: str) -> None:
    holder = os.open(os.path.dirname(place) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.unlink(os.path.basename(place), dir_fd=holder)
        os.symlink(target, os.path.basename(place), dir_fd=holder)
    finally:
        os.close(holder)


def by_moving_away(place: str, target: str) -> None:
    os.rename(place, place + ".old")
    os.symlink(target, place)
    os.unlink(place + ".old")


WAYS = (
    *(by_unlink, by_rename, by_rename_from_outside, by_ln, by_exchange),
    *(by_dir_fd, by_moving_away),
)


@operation("links", 8)
def retarget(play: Play) -> str:
    """A link of the tree leads to another target of its kind."""
    name = play.pick(sorted(tree.LINKS))
    target = play.ground.fill(play.pick(tree.LINKS[name]))
    place = play.pick((name, play.at(name)))
    play.way(WAYS)(place, target)
    play.moved.append(name)
    return "done"


@operation("links", 3)
def file_becomes_link(play: Play) -> str:
    """A regular file is replaced by a link to another one."""
    name = play.pick(tree.FILES)
    target = play.at(play.pick(tree.FILES))
    if attempt(os.path.samefile, name, target) is True:
        return "the same"
    play.way(WAYS)(name, target)
    play.moved.append(name)
    return "done"


def moved_name(play: Play) -> str:
    """A name that has become another link in this sequence, now if not before."""
    if not play.moved:
        OPERATIONS[play.random.choice(("retarget", "file_becomes_link"))].run(play)
    name = play.random.choice(play.moved or ["latest"])
    if name in tree.FOLDER_LINKS:
        name = os.path.join(name, play.random.choice(("f0", "f1")))
    return play.path((name,))


@operation("links")
def link_becomes_file(play: Play) -> str:
    """A link is replaced by a copy of a file."""
    name = play.pick(sorted(tree.LINKS))
    with open(play.path(tree.FILES), "rb") as file:
        content = file.read()
    with open("../out/copy", "wb") as file:
        file.write(content)
    os.replace("../out/copy", name)
    return "done"


@operation("links")
def directory_becomes_link(play: Play) -> str:
    """A directory is moved away and a link to another one takes its place."""
    name, target = play.pick((("a", "b"), ("b", "a"), ("ex", "../out/ex")))
    os.rename(name, "../out/moved")
    os.symlink(target, name)
    return "done"


@operation("links")
def read_link(play: Play) -> str:
    """Where a link leads to."""
    return os.readlink(play.path(sorted(tree.LINKS))).replace(
        str(play.ground.base), "BASE"
    )
