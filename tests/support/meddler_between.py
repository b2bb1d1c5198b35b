"""A program between two nodes, each of which takes it for the other.

`meddler_between.py LEFT RIGHT DIRECTORY` acts in two network namespaces: LEFT has a
link to node 0 and the address of node 1, RIGHT the other way round. It listens where
the nodes say in DIRECTORY that they do, says "ready", and obeys lines on its standard
input:

    change COUNT    every COUNTth reply with bytes is changed; 0 ends that
    WAY             the next beat of a session is meddled with; see support.meddling
    count           print how many replies were changed and frames meddled with, and how
                    often a node has joined the other
"""

import asyncio
import ctypes
import json
import os
import socket
import sys
from functools import partial
from pathlib import Path

from support.meddling import WAYS, Meddler
from support.spaces import address_of

CLONE_NEWNET = 0x40000000
LOOK_S = 0.01


def socket_in(namespace: str) -> socket.socket:
    """A socket in a network namespace, where it stays."""
    libc = ctypes.CDLL(None, use_errno=True)
    space = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        if libc.setns(space, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), namespace)
    finally:
        os.close(space)
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM)


def connected(namespace: str, place: tuple[str, int]) -> socket.socket:
    """A connection from a namespace; threads have a namespace of their own each."""
    made = socket_in(namespace)
    made.settimeout(5)
    made.connect(place)
    made.setblocking(False)
    return made


def addresses(folder: Path) -> set[Path]:
    """The files in which nodes publish their addresses."""
    return set(folder.glob("*.address"))


async def follow_addresses(meddler: Meddler, spaces: list[str], folder: Path) -> None:
    """Listen in place of each node as soon as it publishes its address."""
    known: set[Path] = set()
    while True:
        for file in addresses(folder) - known:
            known.add(file)
            number = int(file.name.removesuffix(".address").rsplit(".", 1)[1])
            place = address_of(number), json.loads(file.read_text())["port"]
            listener = socket_in(spaces[1 - number])
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(place)
            listener.listen(64)
            onward = partial(connected, spaces[number], place)
            await meddler.listen(listener, onward)
        await asyncio.sleep(LOOK_S)


def obey(meddler: Meddler, line: str) -> None:
    """Execute the order of a line of the standard input."""
    match line.split():
        case ["change", count]:
            meddler.change_every = int(count)
        case ["count"]:
            print(meddler.changed, meddler.meddled, meddler.joins, flush=True)
        case [way] if way in WAYS:
            meddler.way = way
        case _:
            raise ValueError(line)


async def main() -> None:
    """Forward the messages of the nodes until the standard input ends."""
    *spaces, folder = sys.argv[1:]
    meddler, loop = Meddler(), asyncio.get_running_loop()
    following = follow_addresses(meddler, spaces, Path(folder))
    meddler.tasks.add(asyncio.create_task(following))
    print("ready", flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        obey(meddler, line)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
