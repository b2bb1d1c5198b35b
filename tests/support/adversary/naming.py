"""Names that are created, removed and changed, by every call of libc for that."""

import os
import shutil
import stat
import tempfile

from support.adversary import tree
from support.adversary.links import (
    AT_EMPTY_PATH,
    AT_SYMLINK_FOLLOW,
    RENAME_EXCHANGE,
    RENAME_NOREPLACE,
    checked,
)
from support.adversary.play import Play, operation
from support.adversary.truth import AT_FDCWD, LIBC

REGULAR = (*tree.CATALOGUED, *tree.NEW)


def rename_at(one: str, two: str) -> None:
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.rename(one, two, src_dir_fd=here, dst_dir_fd=here)
    finally:
        os.close(here)


def _rename2(one: str, two: str, flags: int) -> None:
    names = (AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(two))
    checked(LIBC.renameat2(*names, flags))


def rename_exchange(one: str, two: str) -> None:
    _rename2(one, two, RENAME_EXCHANGE)


def rename_noreplace(one: str, two: str) -> None:
    _rename2(one, two, RENAME_NOREPLACE)


def move(one: str, two: str) -> None:
    shutil.move(one, two)


def shell_move(one: str, two: str) -> None:
    os.spawnlp(os.P_WAIT, "mv", "mv", "-f", one, two)


RENAMES = (os.rename, os.replace, rename_at, rename_exchange, rename_noreplace, move)


@operation("names", 4)
def rename(play: Play) -> str:
    """One file takes the name of another one."""
    one, two = play.path(REGULAR), play.path(REGULAR)
    play.way((*RENAMES, shell_move))(one, two)
    return "done"


@operation("names")
def rename_anything(play: Play) -> str:
    """The same with links and directories."""
    one, two = play.path(), play.path()
    play.way(RENAMES[:-1])(one, two)
    return "done"


@operation("names", 1)
def rename_folder(play: Play) -> str:
    """A directory gets another name, or two change places."""
    one, two = play.random.sample(("a", "b", "ex", "newdir"), 2)
    play.say(f"{one} {two}")
    play.way(RENAMES[:-1])(one, two)
    return "done"


def follow_link(one: str, two: str) -> None:
    names = (AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(two))
    checked(LIBC.linkat(*names, AT_SYMLINK_FOLLOW))


def plain_link(one: str, two: str) -> None:
    checked(LIBC.link(os.fsencode(one), os.fsencode(two)))


@operation("names", 3)
def link(play: Play) -> str:
    """A file gets one more name, which may be outside or in the other root."""
    one, two = play.path(), play.path((*tree.NEW, *tree.HARD))
    play.way((os.link, follow_link, plain_link))(one, two)
    return "done"


@operation("names")
def link_held(play: Play) -> str:
    """The file behind a descriptor gets one more name."""
    held, name = play.some_held(), play.path(tree.NEW)
    if play.pick(("empty path", "/proc")) == "/proc":
        follow_link(f"/proc/self/fd/{held.descriptor}", name)
        return "done"
    words = (held.descriptor, b"", AT_FDCWD, os.fsencode(name), AT_EMPTY_PATH)
    return checked(LIBC.linkat(*words))


def libc_remove(path: str) -> None:
    checked(LIBC.remove(os.fsencode(path)))


def unlink_at(path: str) -> None:
    checked(LIBC.unlinkat(AT_FDCWD, os.fsencode(path), 0))


@operation("names", 2)
def symlink(play: Play) -> str:
    """A new link, which may lead nowhere, to itself, or out of the roots."""
    targets = ("f0", "../f1", "nowhere", "new0", "../out/cover/f0", "../other", "a")
    target = play.pick((*targets, play.at("b/f0"), play.at("../out")))
    os.symlink(target, play.path((*tree.NEW, "a/deep/new0", "ex/new0")))
    return "done"


@operation("names", 3)
def unlink(play: Play) -> str:
    """A name is removed."""
    path = play.path((*REGULAR, *tree.LINKS))
    play.way((os.unlink, libc_remove, unlink_at))(path)
    return "done"


@operation("names")
def replace_by_new(play: Play) -> str:
    """A new file takes the place of one, as careful programs write."""
    path = play.path(REGULAR)
    payload = play.payload()
    holder = play.pick((os.path.dirname(path) or ".", "../out"))
    descriptor, name = tempfile.mkstemp(dir=holder)
    os.write(descriptor, payload)
    os.close(descriptor)
    try:
        os.replace(name, path)
    except OSError:
        os.unlink(name)
        raise
    return "done"


@operation("names")
def remove_and_make(play: Play) -> str:
    """A file is removed, and another kind of object takes its name."""
    path = play.path(tree.CATALOGUED)
    kind = play.pick(("folder", "file", "socket"))
    os.unlink(path)
    if kind == "folder":
        os.mkdir(path)
    else:
        os.mknod(path, 0o600 | (stat.S_IFSOCK if kind == "socket" else stat.S_IFREG))
    return "done"


@operation("names", 1)
def make_folder(play: Play) -> str:
    """A new directory."""
    os.mkdir(play.path(("newdir", "a/newdir", "f0", "../out/newdir")))
    return "done"


@operation("names", 1)
def remove_folder(play: Play) -> str:
    """A directory is removed if it is empty, like one that was just made in it."""
    path = play.path(tree.FOLDERS)
    if play.pick((True, False)):
        path += "/short-lived"
        os.mkdir(path)
    os.rmdir(path)
    return "done"


@operation("names", 1)
def remove_tree(play: Play) -> str:
    """A directory is removed with its content."""
    shutil.rmtree(play.path(("a/deep", "b", "newdir")))
    return "done"
