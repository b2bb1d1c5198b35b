"""Directories held open, or used as working directory, while they are renamed."""

import os
from collections.abc import Callable

from support.adversary import links, tree, truth
from support.adversary.attributes import WAYS as CHANGES
from support.adversary.naming import RENAMES
from support.adversary.play import Play, operation
from support.adversary.writing import WAYS as WRITES
from support.adversary.writing import fill

PLACES = (
    *("a", "b", "a/deep", "cur", "exd", "outd", "ex", "../other", "../out"),
    *("leaved", "leaved2", "abroadd", "leaved/sub"),
)
INSIDE = (
    *("f0", "f1", "g0", "both", "mid", "../f2", "./f0", "../a/f1", "../b/f0"),
    *("h0", "sub/h1", "../g0", "hop", "on", "s1", "../s0"),
)
AWAY = ("newdir", "../out/away", "b/inner", "../other/away", "../far/away")


def look_inside(play: Play, holder: str) -> None:
    """Compares what the names in a directory show."""
    for name in INSIDE:
        path = f"{holder}/{name}"
        true = truth.look_raw(path)
        shown = truth.look_shim(path, true)
        play.wrong += truth.differences(f"{name} in a held place", true, shown)


def folder_goes(play: Play, name: str) -> str:
    """A directory, or a link to one, gets another name."""
    if name.startswith(".."):
        return "a root stays"
    if name.startswith(("leaved", "abroadd")) and play.pick((True, False)):
        name = os.path.realpath(play.at(name))
    beside = play.at(play.pick(AWAY))
    return str(truth.attempt(play.way(RENAMES[:3]), play.at(name), beside))


def others_change_places(play: Play, name: str) -> str:
    """Two directories change places."""
    if name.startswith(".."):
        return "a root stays"
    if name.startswith("leaved"):
        words = "../far/sub", play.pick(("a", "b", "../out/dir"))
    else:
        words = "b" if name != "b" else "a", name
    return str(truth.attempt(links.exchange, *map(play.at, words)))


def link_goes(play: Play, name: str) -> str:
    """The link that led to it leads elsewhere."""
    if name not in tree.FOLDER_LINKS:
        return "no link"
    target = play.ground.fill(play.pick(tree.LINKS[name]))
    play.way(links.WAYS)(play.at(name), target)
    return "moved"


MOVES: tuple[Callable[[Play, str], str], ...] = (
    *(folder_goes, others_change_places, link_goes, link_goes),
)


@operation("folders", 6)
def use_held_folder(play: Play) -> str:
    """Names in a directory that is held open are used after its own was removed."""
    name = play.pick(PLACES)
    holder = os.open(name, play.pick((os.O_RDONLY, os.O_PATH)) | os.O_DIRECTORY)
    try:
        result = play.way(MOVES)(play, name)
        inside = play.pick(INSIDE)
        if play.pick((True, False)):
            opened = os.open(inside, os.O_WRONLY | os.O_TRUNC, dir_fd=holder)
            fill(opened, play.payload())
        else:
            place = f"/proc/self/fd/{holder}/{inside}"
            play.way((*WRITES, *CHANGES))(play, place)
        look_inside(play, f"/proc/self/fd/{holder}")
    finally:
        os.close(holder)
    return result


@operation("folders", 6)
def use_working_folder(play: Play) -> str:
    """Names in the working directory are used after its own was removed."""
    name = play.pick(PLACES)
    os.chdir(name)
    result = play.way(MOVES)(play, name)
    look_inside(play, ".")
    play.way((*WRITES, *CHANGES))(play, play.pick(INSIDE))
    look_inside(play, ".")
    return result


@operation("folders", 3)
def names_by_held_folder(play: Play) -> str:
    """Names are changed in a directory that is held open."""
    name = play.pick(PLACES)
    holder = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
    try:
        result = play.way(MOVES)(play, name)
        one, two = play.pick(INSIDE), play.pick(INSIDE)
        if play.pick((True, False)):
            os.rename(one, two, src_dir_fd=holder, dst_dir_fd=holder)
        else:
            os.unlink(one, dir_fd=holder)
        look_inside(play, f"/proc/self/fd/{holder}")
    finally:
        os.close(holder)
    return result
