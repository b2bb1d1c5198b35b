"""Connects to an agent as nobody should: with wrong proofs, old ones, or raw bytes."""

import json
import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from monarch.peers.protocol import (
    NONCE_BYTES,
    Conversation,
    Identity,
    Kind,
    ProtocolError,
    Role,
)

PATIENCE_S = 10.0
ANSWER_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Door:
    """The address of an agent, and the identity that it accepts."""

    host: str
    port: int
    job: str
    number: int
    secret: bytes

    def connect(self) -> socket.socket:
        """A connection on which nothing was sent."""
        return socket.create_connection((self.host, self.port), PATIENCE_S)

    def answer(self, *pieces: bytes) -> bytes:
        """The agent's answer to some bytes before it closes; it must close."""
        with self.connect() as stranger:
            # The other end may have closed before all of it was sent.
            with suppress(ConnectionError):
                for piece in pieces:
                    stranger.sendall(piece)
            return rest(stranger)


def doors(rendezvous: Path) -> list[Door]:
    """The agents that have left their address and secret in a directory."""
    found = []
    for place in sorted(rendezvous.glob("*.address")):
        job, number = place.name.removesuffix(".address").rsplit(".", 1)
        told = json.loads(place.read_text())
        secret = (rendezvous / f"{job}.key").read_bytes()
        found.append(Door(told["hosts"][0], told["port"], job, int(number), secret))
    return found


def rest(stranger: socket.socket) -> bytes:
    """The bytes received until the other side closes."""
    content = b""
    with suppress(ConnectionError):
        while piece := stranger.recv(65536):
            content += piece
            assert len(content) <= ANSWER_BYTES_MAX
    return content


@dataclass
class Caller:
    """A conversation with an agent, and all its messages.

    Args:
        number: the node that we claim to be.
    """

    door: Door
    number: int
    secret: bytes
    said: list[bytes] = field(default_factory=list)

    def trust(self) -> tuple[socket.socket, Conversation]:
        """Make the handshake; ProtocolError or OSError where it is refused."""
        stranger = self.door.connect()
        try:
            identity = Identity(self.door.job, self.number, self.secret)
            nonce = os.urandom(NONCE_BYTES)
            conversation = Conversation(Role.CLIENT, identity, nonce, self.door.number)
            while not conversation.authenticated:
                self.exchange(stranger, conversation)
            return stranger, conversation
        except BaseException:
            stranger.close()
            raise

    def exchange(self, stranger: socket.socket, conversation: Conversation) -> Kind:
        """Say what is to be said, and listen to one message or a step of one."""
        self.said.append(conversation.outgoing())
        stranger.sendall(self.said[-1])
        while True:
            piece = stranger.recv(min(conversation.wants, 65536))
            if not piece:
                raise ProtocolError("the agent has closed the connection")
            if messages := conversation.receive(piece):
                return messages[-1].kind
            if waiting := conversation.outgoing():
                self.said.append(waiting)
                stranger.sendall(waiting)

    def data_socket(self) -> socket.socket:
        """A connection to the agent's data plane."""
        stranger, conversation = self.trust()
        conversation.send(Kind.SOCKET, {})
        assert self.exchange(stranger, conversation) is Kind.SOCKET_READY
        return stranger
