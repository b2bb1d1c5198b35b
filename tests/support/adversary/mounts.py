"""Other mounts over staged files, and two roots that look alike."""

import os
import random
import subprocess
from pathlib import Path

from support.adversary import truth
from support.adversary.links import checked
from support.adversary.play import Play, operation
from support.adversary.truth import LIBC, digest

MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
CLONE_NEWNS = 0x20000
COVERED = ("a", "b", "a/deep", "../other", "../far", "../far/sub", "../abroad/d")
TWINS = 64


def by_libc(play: Play, source: str, place: str) -> None:
    words = (os.fsencode(source), os.fsencode(place), None, MS_BIND, None)
    checked(LIBC.mount(*words))


def by_program(play: Play, source: str, place: str) -> None:
    subprocess.run(["mount", "--bind", source, place], check=True)


@operation("mounts", 5)
def cover(play: Play) -> str:
    """Something is mounted over a directory or a file."""
    play.need("mounts")
    name = play.pick((*COVERED, "f0"))
    source = "../out/cover/f0" if name == "f0" else "../out/cover"
    place = os.path.realpath(play.at(name))
    play.way((by_libc, by_program))(play, source, place)
    play.mounts.append(place)
    return "covered"


@operation("mounts", 2)
def uncover(play: Play) -> str:
    """The last mount is removed."""
    play.need("mounts")
    if not play.mounts:
        raise LookupError("nothing covered")
    place = play.mounts.pop()
    if play.pick(("umount", "umount2")) == "umount":
        return checked(LIBC.umount(os.fsencode(place)))
    return checked(LIBC.umount2(os.fsencode(place), 2))


def private_program(play: Play, name: str) -> bytes:
    """What a program reads in a namespace that others have made."""
    covering = f"mount --bind ../out/cover {play.at(name)}; exec cat {name}/f0"
    words = ["unshare", "-m", "--propagation", "private", "sh", "-c", covering]
    return subprocess.run(words, capture_output=True, check=False).stdout


def private_raw(play: Play, name: str) -> bytes:
    """The same where nothing has seen the namespace being made."""
    output, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(told, 1)
        truth.call("unshare", CLONE_NEWNS)
        truth.call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
        source, place = b"../out/cover", os.fsencode(play.at(name))
        truth.call("mount", source, place, None, MS_BIND, None)
        os.execlp("cat", "cat", f"{name}/f0")
    os.close(told)
    with open(output, "rb") as file:
        content = file.read()
    os.waitpid(child, 0)
    return content


@operation("mounts", 6)
def read_in_private_namespace(play: Play) -> str:
    """A child in a mount namespace of its own reads the files mounted there."""
    play.need("mounts")
    name = play.pick(COVERED[:3])
    true = truth.attempt(truth.raw_read, "../out/cover/f0")
    if not truth.attempt(os.path.isdir, name) or isinstance(true, str):
        return "no directory"
    content = play.way((private_program, private_raw))(play, name)
    if content != true:
        where = f"{name}/f0 in a private namespace"
        play.wrong.append(f"bytes of {where}: {digest(true)} {digest(content)}")
    return "read"


def twin_name(number: int) -> str:
    """A file of both twins."""
    return f"t{number % TWINS}"


@operation("twins", 6)
def read_twins(play: Play) -> str:
    """Files of two roots in which path, inode, size and times are alike are read."""
    play.need("twins")
    name = twin_name(play.random.randrange(TWINS))
    play.say(name)
    for _ in range(6):
        path = str(play.random.choice(play.twins) / name)
        true = truth.look_raw(path)
        play.wrong += truth.differences(path, true, truth.look_shim(path, true))
    return "read"


@operation("twins", 2)
def read_twins_in_children(play: Play) -> str:
    """The same in fresh programs."""
    play.need("twins")
    name = twin_name(play.random.randrange(TWINS))
    play.say(name)
    for _ in range(4):
        path = play.random.choice(play.twins) / name
        true = truth.raw_read(str(path))
        shown = subprocess.run(["cat", path], capture_output=True, check=True).stdout
        if shown != true:
            play.wrong.append(f"bytes of {path}: {digest(true)} {digest(shown)}")
    return "read"


def make_twins(folder: Path) -> list[Path]:
    """Two images of which all but the bytes of the files is alike."""
    images = []
    for which in ("one", "two"):
        source, image = folder / f"{which}.d", folder / f"{which}.img"
        source.mkdir()
        content = random.Random(which)
        for number in range(TWINS):
            path = source / twin_name(number)
            path.write_bytes(content.randbytes(700 + 60 * number))
            os.utime(path, (1_400_000_000, 1_400_000_000))
        words = ["mkfs.ext4", "-q", "-d", str(source), "-O", "^has_journal"]
        words += [str(image), "4M"]
        subprocess.run(words, check=True, capture_output=True)
        orders = [
            f"sif /{twin_name(number)} {field} {value}"
            for number in range(TWINS)
            for field, value in (("ctime", "@1400000000"), ("ctime_extra", "0"))
        ]
        words = ["debugfs", "-w", "-f", "-", str(image)]
        answer = "\n".join(orders).encode()
        subprocess.run(words, input=answer, check=True, capture_output=True)
        images.append(image)
    return images
