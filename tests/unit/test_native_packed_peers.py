"""Files sent packed between nodes: stored as they arrive, or decoded once."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pytest

from monarch import native
from monarch.codec import Codec
from monarch.native import PeerReceiver, PeerServer, ReceiverOptions, ServerOptions
from support.processes import wait_until
from unit.test_native_packs import (  # noqa: F401
    HEAD_BYTES,
    MIB,
    NODES,
    PAGE,
    ZSTD,
    Node,
    Wanted,
    make,
    pytestmark,
    text,
)

OWNER, ASKER = 1, 0
KEY = bytes(range(32))
SIZES = (1, 4095, 110_000, 110_001, MIB, 3 * MIB + 7, 8 * MIB)
KEYS = [b"", KEY] if native.seal_library() else [b""]

Connect: TypeAlias = Callable[..., PeerReceiver]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """A function that lets a node ask another one."""

    def join(asker: Node, owner: Node, key: bytes = b"", flip: int = 0) -> PeerReceiver:
        asks, serves = socket.socketpair()
        if flip:
            asks = meddled(asks, flip, stack)
        server = PeerServer(owner.engine, ServerOptions(NODES))
        options = ReceiverOptions(NODES, sealed=bool(key))
        receiver = PeerReceiver(asker.engine, options)
        stack.enter_context(server)
        stack.enter_context(receiver)
        server.adopt(ASKER, serves.detach())
        receiver.connect(OWNER, asks.detach())
        return receiver

    with ExitStack() as stack:
        yield join


def meddled(ends: socket.socket, place: int, ending: ExitStack) -> socket.socket:
    """A socket by which one bit of what comes, behind so many bytes, is wrong."""
    own, between = socket.socketpair()

    def carry(source: socket.socket, to: socket.socket, place: int | None) -> None:
        passed = 0
        with suppress(OSError):  # the other one has closed its end
            while data := bytearray(source.recv(1 << 16)):
                if place is not None and passed <= place < passed + len(data):
                    data[place - passed] ^= 1
                passed += len(data)
                to.sendall(data)
        for end in (source, to):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    ways = ((between, ends, None), (ends, between, place))
    threads = [threading.Thread(target=carry, args=way) for way in ways]
    for thread in threads:
        thread.start()
    for ended in (*[thread.join for thread in threads], between.close, ends.close):
        ending.callback(ended)
    return own


def body(size: int, seed: int) -> bytes:
    """Half of it shrinks."""
    return text(size - size // 2, seed) + os.urandom(size // 2)


def fetch(node: Node, receiver: PeerReceiver, *files: int) -> None:
    """Let fill fetch Files, and wait until they are packed."""
    listed = np.array(files, np.uint32)
    node.engine.fill(np.zeros(0, np.uint32), listed)
    wait_until(lambda: node.packed(*files), "files are packed")
    assert receiver.arrivals() == []


@pytest.mark.parametrize("key", KEYS, ids=bool)
@pytest.mark.parametrize("name", ["zstd:3", "none"])
def test_frames_of_a_peer_are_stored_as_they_arrive(
    make: Callable[..., Node],  # noqa: F811
    connect: Connect,
    name: str,
    key: bytes,
) -> None:
    contents = [body(size, number) for number, size in enumerate(SIZES)]
    files, wanted = range(len(contents)), Wanted(Codec.parse(name), key=key)
    owner = make(contents, wanted)
    owner.fill(*files)
    asker = make(contents, replace(wanted, asks=OWNER))
    receiver = connect(asker, owner, key)

    fetch(asker, receiver, *files)

    tally = asker.tally
    assert tally["came_packed_files"] == tally["peer_files"] == len(files)
    assert tally["peer_bytes"] == sum(map(len, contents))
    assert tally["pack_ns"] == tally["unpacked_files"] == 0
    assert tally["origin_read_bytes"] == owner.tally["unpacked_files"] == 0
    assert asker.used_bytes == owner.used_bytes
    assert tally["raw_files"] == owner.tally["raw_files"]
    for file in files:
        asker.bring(file)
        assert asker.plain(file) == contents[file]


@pytest.mark.parametrize("key", KEYS, ids=bool)
def test_program_has_plain_bytes_at_once_and_the_frame_is_kept(
    make: Callable[..., Node],  # noqa: F811
    connect: Connect,
    key: bytes,
) -> None:
    contents = [body(size, number) for number, size in enumerate(SIZES)]
    files, wanted = range(len(contents)), Wanted(key=key, pool_bytes=256 * MIB)
    owner = make(contents, wanted)
    owner.fill(*files)
    asker = make(contents, replace(wanted, asks=OWNER))
    connect(asker, owner, key)

    asker.bring(*files)
    wait_until(lambda: asker.packed(*files), "frames are kept")

    tally = asker.tally
    assert tally["came_packed_files"] == tally["unpacked_files"] == len(files)
    assert tally["packed_files"] == len(files)
    assert tally["pack_ns"] == tally["origin_read_bytes"] == 0
    for file in files:
        assert asker.plain(file) == contents[file]
    asker.leave(2)
    asker.bring(2)
    assert asker.plain(2) == contents[2]
    assert tally["peer_files"] == asker.tally["peer_files"]


def test_node_that_does_not_keep_a_file_decodes_it_in_passing(
    make: Callable[..., Node],  # noqa: F811
    connect: Connect,
) -> None:
    contents = [body(300_000, number) for number in range(4)]
    owner = make(contents)
    owner.fill(*range(4))
    asker = make(contents, Wanted(tier_bytes=PAGE, asks=OWNER, kept=False))
    connect(asker, owner)

    asker.bring(*range(4))

    assert [asker.plain(file) for file in range(4)] == contents
    tally = asker.tally
    assert tally["came_packed_files"] == tally["transit_files"] == 4
    assert tally["packed_files"] == owner.tally["unpacked_files"] == 0


@pytest.mark.parametrize("other", ["lz4", "zstd:3+shuffle4"])
def test_peer_of_another_codec_sends_plain_bytes(
    make: Callable[..., Node],  # noqa: F811
    connect: Connect,
    other: str,
) -> None:
    contents = [body(300_000, number) for number in range(4)]
    owner = make(contents, Wanted(Codec.parse(other)))
    owner.fill(*range(4))
    asker = make(contents, Wanted(asks=OWNER))
    receiver = connect(asker, owner)

    fetch(asker, receiver, *range(4))

    assert asker.tally["came_packed_files"] == 0
    assert asker.tally["peer_files"] == owner.tally["unpacked_files"] == 4
    asker.bring(2)
    assert asker.plain(2) == contents[2]


def test_level_of_a_peer_may_differ(
    make: Callable[..., Node],  # noqa: F811
    connect: Connect,
) -> None:
    contents = [body(300_000, 1)]
    owner = make(contents, Wanted(Codec.parse("zstd:9")))
    owner.fill(0)
    asker = make(contents, Wanted(ZSTD, asks=OWNER))

    fetch(asker, connect(asker, owner), 0)

    assert asker.tally["came_packed_files"] == 1
    asker.bring(0)
    assert asker.plain(0) == contents[0]


def test_fill_takes_plain_bytes_of_files_that_its_peer_does_not_keep_packed(
    make: Callable[..., Node],  # noqa: F811
    connect: Connect,
) -> None:
    contents = [body(300_000, number) for number in range(3)]
    owner = make(contents, Wanted(tier_bytes=PAGE, kept=False))
    asker = make(contents, Wanted(asks=OWNER))

    fetch(asker, connect(asker, owner), *range(3))

    tally = asker.tally
    assert tally["came_packed_files"] == 0 < tally["pack_ns"]
    assert tally["peer_files"] == tally["packed_files"] == 3


@pytest.mark.parametrize("key", KEYS, ids=bool)
@pytest.mark.parametrize("where", ["head", "lengths", "piece"])
def test_frame_that_is_changed_on_the_way_is_refused(
    make: Callable[..., Node],  # noqa: F811
    connect: Connect,
    where: str,
    key: bytes,
) -> None:
    contents = [body(300_000, 1)]
    owner = make(contents, Wanted(key=key))
    owner.fill(0)
    asker = make(contents, Wanted(asks=OWNER, key=key))
    reply = native.DTYPES["frame_reply"].itemsize
    # One acknowledgement may arrive before, as large as a reply without bytes.
    place = {"head": 20, "lengths": HEAD_BYTES + 1, "piece": 100_000}[where]
    receiver = connect(asker, owner, key, flip=reply + place)

    asker.engine.demand(0)
    wait_until(lambda: receiver.traffic()[OWNER].corrupt, "it is found")

    assert asker.tally["packed_files"] == 0
    assert not asker.is_ready(0)


@pytest.mark.parametrize("key", KEYS, ids=bool)
@pytest.mark.parametrize("ask", ["open", "fill"])
def test_frame_that_is_damaged_at_its_owner_fails_its_check(
    make: Callable[..., Node],  # noqa: F811
    connect: Connect,
    ask: str,
    key: bytes,
) -> None:
    contents = [body(300_000, 1)]
    owner = make(contents, Wanted(key=key))
    owner.fill(0)
    with owner.segments[0].open("r+b") as segment:
        segment.seek(-1000, os.SEEK_END)
        damaged = bytes([segment.read(1)[0] ^ 1])
        segment.seek(-1000, os.SEEK_END)
        segment.write(damaged)
    asker = make(contents, Wanted(asks=OWNER, key=key))
    receiver = connect(asker, owner, key)

    if ask == "fill":
        # The piece has not been decoded yet.
        fetch(asker, receiver, 0)
        asker.engine.demand(0)
        wait_until(lambda: asker.tally["frames_dropped"], "it is found")
    else:
        asker.engine.demand(0)
        wait_until(lambda: receiver.traffic()[OWNER].corrupt, "it is found")

    assert not asker.packed(0)
    assert not asker.is_ready(0)
