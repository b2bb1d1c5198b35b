"""Plays sequences, and records the state of every name after each operation."""

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, TextIO

# Imported for the operations that they add to the list.
from support.adversary import (
    attributes,
    children,
    descriptors,
    folders,
    links,
    listings,
    mounts,
    naming,
    reading,
    tree,
    truth,
    writing,
)
from support.adversary.observer import Observer
from support.adversary.play import OPERATIONS, Play, Skipped
from support.adversary.tree import Ground

TOPICS = (
    attributes,
    children,
    descriptors,
    folders,
    links,
    listings,
    mounts,
    naming,
    reading,
    writing,
)


def perform(play: Play, name: str) -> str:
    """The result of one operation."""
    try:
        return OPERATIONS[name].run(play)
    except Skipped as reason:
        return f"skipped: needs {reason}"
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "E?")
    except (LookupError, ValueError, subprocess.SubprocessError, shutil.Error) as error:
        return type(error).__name__


def enter(order: dict[str, Any], can: frozenset[str]) -> Play:
    """The play that an order describes."""
    ground = Ground(Path(order["base"]))
    os.chdir(ground.main)
    names: dict[tuple[int, ...], tuple[str, ...]] = {}
    for name in tree.CATALOGUED:
        path = os.path.normpath(ground.main / name)
        identity = truth.raw_identity(path)
        names[identity] = (*names.get(identity, ()), path)
    hot = tuple(order["hot"])
    return Play(ground, hot, order["inherited"], can, names)


def play_out(order: dict[str, Any], scene: dict[str, Any], out: TextIO) -> None:
    """Plays one sequence."""
    play = enter(order, frozenset(scene["can"]))
    play.twins = [Path(path) for path in scene["twins"]]
    compare = scene["compare"] and not order["cold"]
    state = play.look(compare)
    start = {"step": -1, "op": "start", "words": [], "result": "", "lost": False}
    write(out, play=order["play"], **start, wrong=play.wrong, state=state)
    observer = Observer.start(play) if compare and order["observed"] else None
    for step, (name, seed) in enumerate(order["steps"]):
        play.random = random.Random(seed)
        play.words, play.wrong, play.lost, play.middle = [], [], False, None
        result = perform(play, name)
        os.chdir(play.ground.main)
        state = play.look(scene["compare"])
        play.wrong += listings.compare_all() if scene["compare"] else []
        play.wrong += observer.look() if observer else []
        line = {"words": play.words, "result": result, "wrong": play.wrong}
        play_step = {"play": order["play"], "step": step, "op": name}
        lost = {"lost": play.lost, "middle": play.middle}
        write(out, **play_step, **line, **lost, state=state)
    play.end()
    if observer:
        observer.end()


def write(out: TextIO, **line: Any) -> None:
    """One line that is on its way when the next operation ends this process."""
    print(json.dumps(line), file=out, flush=True)


def main(scene_path: str, out_path: str) -> None:
    """Plays all sequences of a scene."""
    scene = json.loads(Path(scene_path).read_bytes())
    with open(out_path, "w", encoding="utf-8") as out:
        for order in scene["plays"]:
            play_out(order, scene, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
