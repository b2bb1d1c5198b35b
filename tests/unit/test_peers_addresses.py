"""A node is reached by the first of its addresses that answers."""

import asyncio
import socket
import time

import pytest

from monarch.peers.addresses import connect_first
from monarch.peers.protocol import Identity
from monarch.peers.timeouts import HANDSHAKE_S
from support.meshes import SECRET, job, open_descriptors

OWN = Identity("job", 1, SECRET)


def silent():
    """A socket that takes connections and never answers, as a frozen agent's."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


def run(main):
    return asyncio.run(asyncio.wait_for(main(), 30))


def test_addresses_that_do_not_answer_delay_the_next_ones_only_briefly(tmp_path):
    async def main():
        async with job(1, tmp_path) as [first]:
            frozen = [silent() for _ in range(4)]
            places = [listener.getsockname() for listener in frozen]
            port = first.mesh.own.port
            before, begun_s = open_descriptors(), time.monotonic()
            connection = await connect_first([*places, ("127.0.0.1", port)], OWN, 0, "")
            # Sequentially they would take four times as long.
            assert time.monotonic() - begun_s < HANDSHAKE_S
            connection.close()
            await asyncio.sleep(0.1)
            assert open_descriptors() <= before + 1  # the other end of ours
            for listener in frozen:
                listener.close()

    run(main)


def test_a_silent_address_is_given_up_after_one_handshake():
    async def main():
        frozen = [silent() for _ in range(3)]
        places = [listener.getsockname() for listener in frozen]
        before, begun_s = open_descriptors(), time.monotonic()
        with pytest.raises(TimeoutError):
            await connect_first(places, OWN, 0, "")
        assert time.monotonic() - begun_s < 2 * HANDSHAKE_S
        assert open_descriptors() == before
        for listener in frozen:
            listener.close()

    run(main)


def test_a_node_without_an_address_is_not_reached():
    with pytest.raises(ConnectionError, match="no address of node 0"):
        run(lambda: connect_first([], OWN, 0, ""))
