"""One connection between two agents as a state machine over bytes.

A frame is a head of 16 bytes, fields as JSON, a body, and after the handshake a tag.
The handshake proves to each side, before anything else is listened to, that the other
knows the job's secret *now*: each proof covers a fresh nonce of the side that checks
it, both node numbers and the side that it was made by. The tags that follow are HMACs
by a key of this handshake and of the sender's side; each covers the number of frames
before it, so that none can be altered, made up, dropped, repeated, put before another
or sent back. The first that does not fit ends the connection.
"""

import hashlib
import hmac
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final

from monarch.errors import MonarchError
from monarch.peers.protocol.messages import (
    BODY_BYTES_MAX,
    FIELDS_BYTES_MAX,
    FieldError,
    Kind,
    Message,
    format_fields,
    parse_message,
)

VERSION: Final = 2
MAGIC: Final = b"MnCt"
NONCE_BYTES: Final = 32
TAG_BYTES: Final = 16

_HEAD: Final = struct.Struct("<4sBBHII")  # magic, version, kind, 0, fields, body
_HELLO: Final = struct.Struct("<32s32sII")  # nonce, digest of the job, from, to
_CHALLENGE: Final = struct.Struct("<32s32s")  # nonce, proof
_REFUSE: Final = struct.Struct("<H")
_COUNT: Final = struct.Struct("<Q")


class ProtocolError(MonarchError):
    """What came is not what this conversation allows; the connection must end."""


class AlteredError(ProtocolError):
    """Somebody on the way has changed what a node that we trust has said."""


class Reason(IntEnum):
    """Why a handshake was refused."""

    VERSION = 1
    JOB = 2
    NUMBER = 3
    PROOF = 4


_SAME: Final = "install the same Monarch on all nodes"
_REFUSALS: Final = {
    Reason.VERSION: f"it speaks another version of the agents' protocol: {_SAME}",
    Reason.JOB: "it belongs to another job",
    Reason.NUMBER: "it is not the node that we look for",
    Reason.PROOF: "it has another secret than we",
}


class RefusedError(ProtocolError):
    """The other side says why it will not talk."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(_REFUSALS[reason])
        self.reason = reason


class Role(Enum):
    """Which side of a connection one is on: who connects is the client."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def other(self) -> "Role":
        """Return the other side."""
        return Role.SERVER if self is Role.CLIENT else Role.CLIENT


class State(Enum):
    """How far a conversation has come; both sides see the same."""

    START = "start"
    GREETED = "greeted"
    CHALLENGED = "challenged"
    PROVED = "proved"
    OPEN = "open"
    JOINED = "joined"
    FETCHING = "fetching"
    CARRYING = "carrying"
    ASKED = "asked"
    HANDED = "handed"
    CLOSED = "closed"


_C, _S = Role.CLIENT, Role.SERVER

NEXT: Final[Mapping[tuple[State, Role, Kind], State]] = {
    (State.START, _C, Kind.HELLO): State.GREETED,
    (State.GREETED, _S, Kind.CHALLENGE): State.CHALLENGED,
    (State.GREETED, _S, Kind.REFUSE): State.CLOSED,
    (State.CHALLENGED, _C, Kind.PROOF): State.PROVED,
    (State.PROVED, _S, Kind.WELCOME): State.OPEN,
    (State.PROVED, _S, Kind.REFUSE): State.CLOSED,
    # a member of the job
    (State.OPEN, _C, Kind.JOIN): State.JOINED,
    (State.JOINED, _C, Kind.BEAT): State.JOINED,
    (State.JOINED, _S, Kind.BEAT): State.JOINED,
    (State.JOINED, _S, Kind.VIEW): State.JOINED,
    (State.JOINED, _C, Kind.NOTE): State.JOINED,
    (State.JOINED, _S, Kind.NOTE): State.JOINED,
    (State.JOINED, _C, Kind.REPORT): State.JOINED,
    (State.JOINED, _S, Kind.TAKEN): State.JOINED,
    (State.JOINED, _C, Kind.MARKS): State.JOINED,
    (State.JOINED, _S, Kind.MARKS): State.JOINED,
    (State.JOINED, _C, Kind.HEARD): State.JOINED,
    (State.JOINED, _S, Kind.HEARD): State.JOINED,
    (State.JOINED, _C, Kind.LEAVE): State.CLOSED,
    (State.JOINED, _S, Kind.LEAVE): State.CLOSED,
    # the catalog
    (State.OPEN, _C, Kind.ASK): State.FETCHING,
    (State.FETCHING, _S, Kind.LATER): State.FETCHING,
    (State.FETCHING, _S, Kind.OFFER): State.CARRYING,
    (State.CARRYING, _S, Kind.LATER): State.CARRYING,
    (State.CARRYING, _S, Kind.CHUNK): State.CARRYING,
    # the socket itself
    (State.OPEN, _C, Kind.SOCKET): State.ASKED,
    (State.ASKED, _S, Kind.YOURS): State.HANDED,
}

_EXACT: Final = {
    Kind.HELLO: _HELLO.size,
    Kind.CHALLENGE: _CHALLENGE.size,
    Kind.PROOF: hashlib.sha256().digest_size,
    Kind.REFUSE: _REFUSE.size,
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who we are: a node of a job that knows its secret."""

    job: str
    number: int
    secret: bytes

    def __repr__(self) -> str:
        return f"<Identity node {self.number} of {self.job}>"


class Conversation:
    """Reads and writes one connection; after any error it is closed for good.

    Args:
        nonce: random bytes that were never used before.
        peer: the number of the node that a client means to reach; a server learns it.
    """

    def __init__(
        self, role: Role, identity: Identity, nonce: bytes, peer: int | None = None
    ) -> None:
        self.role = role
        self.peer = peer
        self.state = State.START
        self.rest = b""
        self._identity = identity
        self._nonce = nonce
        self._buffer = bytearray()
        self._outgoing = bytearray()
        self._hello = b""
        self._challenge = b""
        self._counts = {Role.CLIENT: 0, Role.SERVER: 0}
        self._keys = {Role.CLIENT: b"", Role.SERVER: b""}
        if role is Role.CLIENT:
            self._greet()

    def __repr__(self) -> str:
        return f"<Conversation {self.role.value} {self.state.value} with {self.peer}>"

    @property
    def trusted(self) -> bool:
        """Return whether the other side has proved that it knows the secret."""
        return self.state not in _UNTRUSTED

    @property
    def wants(self) -> int:
        """Return how many bytes end what is being read; 0 where nothing more is."""
        if self.state in (State.HANDED, State.CLOSED):
            return 0
        if len(self._buffer) < _HEAD.size:
            return _HEAD.size - len(self._buffer)
        return self._frame_bytes() - len(self._buffer)

    def outgoing(self) -> bytes:
        """Return what is to be sent, once."""
        waiting, self._outgoing = bytes(self._outgoing), bytearray()
        return waiting

    def send(self, kind: Kind, fields: Mapping[str, Any], body: bytes = b"") -> None:
        """Add a message to what is to be sent.

        Raises:
            ProtocolError: it is not one that may be sent now.
        """
        message = Message(kind, fields, body)
        self._advance(self.role, kind)
        try:
            text = format_fields(message)
        except FieldError as error:
            raise self._broken(str(error)) from error
        self._emit(kind, text, body)

    def receive(self, piece: bytes) -> list[Message]:
        """Take bytes as they came, in any portions; return the messages they end.

        Never keeps more than one frame. What follows a handed over socket's last frame
        is in `rest`.

        Raises:
            ProtocolError: the connection must end, after `outgoing` was sent.
        """
        if self.state is State.CLOSED:
            raise ProtocolError("the conversation has ended")
        messages: list[Message] = []
        view, start = memoryview(piece), 0
        while start < len(view) and (wanted := self.wants):
            portion = view[start : start + wanted]
            self._buffer += portion
            start += len(portion)
            if len(self._buffer) == _HEAD.size:
                self._check_head()
            if self.wants == 0:
                messages += self._take_frame()
        if self.state is State.HANDED:
            self.rest += bytes(view[start:])
        return messages

    # -- frames -------------------------------------------------------------------

    def _emit(self, kind: Kind, text: bytes, body: bytes) -> None:
        head = _HEAD.pack(MAGIC, VERSION, kind, 0, len(text), len(body))
        self._outgoing += head + text + body
        if kind not in _EXACT:
            self._outgoing += self._tag(self.role, head, text, body)

    def _tag(self, sender: Role, *parts: bytes | bytearray | memoryview) -> bytes:
        count = self._counts[sender]
        self._counts[sender] = count + 1
        mac = hmac.new(self._keys[sender], _COUNT.pack(count), hashlib.sha256)
        for part in parts:
            mac.update(part)
        return mac.digest()[:TAG_BYTES]

    def _frame_bytes(self) -> int:
        *_, kind, _, fields, body = _HEAD.unpack_from(self._buffer)
        tag = 0 if kind in _EXACT else TAG_BYTES
        return int(_HEAD.size + fields + body + tag)

    def _check_head(self) -> None:
        magic, version, kind, zero, fields, body = _HEAD.unpack_from(self._buffer)
        if magic != MAGIC or zero:
            raise self._strange("not a frame of ours")
        if version != VERSION:
            why = f"it speaks version {version} of the agents' protocol, we {VERSION}"
            raise self._refuse(Reason.VERSION, f"{why}: {_SAME}")
        sender = self.role.other
        if kind not in _KINDS or (self.state, sender, Kind(kind)) not in NEXT:
            raise self._strange(f"message {kind} where {self.state.value}")
        exact = _EXACT.get(Kind(kind))
        if exact is not None and (fields, body) != (0, exact):
            raise self._strange(f"{Kind(kind).name} of a wrong length")
        if fields > FIELDS_BYTES_MAX or body > BODY_BYTES_MAX:
            raise self._strange("a frame that is too long")

    def _take_frame(self) -> list[Message]:
        frame, self._buffer = bytes(self._buffer), bytearray()
        *_, number, _, fields, body = _HEAD.unpack_from(frame)
        kind, end = Kind(number), _HEAD.size + fields + body
        if kind in _EXACT:
            return self._take_handshake(kind, frame[_HEAD.size : end])
        tag = self._tag(self.role.other, memoryview(frame)[:end])
        if not hmac.compare_digest(tag, frame[end:]):
            raise self._strange("a frame that was altered, repeated or out of turn")
        text = frame[_HEAD.size : _HEAD.size + fields]
        try:
            message = parse_message(kind, text, frame[_HEAD.size + fields : end])
        except FieldError as error:
            raise self._broken(str(error)) from error
        self._advance(self.role.other, kind)
        return [message]

    def _advance(self, sender: Role, kind: Kind) -> None:
        following = NEXT.get((self.state, sender, kind))
        if following is None:
            raise self._broken(f"{kind.name} where {self.state.value}")
        self.state = following

    def _broken(self, why: str) -> ProtocolError:
        self.state = State.CLOSED
        self._buffer.clear()
        return ProtocolError(why)

    def _strange(self, why: str) -> ProtocolError:
        """Return what ends the connection: no node that we trust sends this."""
        trusted = self.trusted
        broken = self._broken(why)
        return AlteredError(why) if trusted else broken

    # -- handshake ----------------------------------------------------------------

    def _greet(self) -> None:
        assert self.peer is not None
        me = self._identity
        self._hello = _HELLO.pack(self._nonce, _digest(me.job), me.number, self.peer)
        self._emit(Kind.HELLO, b"", self._hello)
        self._advance(self.role, Kind.HELLO)

    def _take_handshake(self, kind: Kind, body: bytes) -> list[Message]:
        self._advance(self.role.other, kind)
        if kind is Kind.HELLO:
            self._take_hello(body)
            return []
        if kind is Kind.CHALLENGE:
            self._take_challenge(body)
            return []
        if kind is Kind.PROOF:
            self._take_proof(body)
            return [Message(Kind.PROOF)]
        [reason] = _REFUSE.unpack(body)
        if reason not in list(Reason):
            raise self._broken("refused without a reason")
        raise RefusedError(Reason(reason))

    def _take_hello(self, body: bytes) -> None:
        _, job, sender, meant = _HELLO.unpack(body)
        if job != _digest(self._identity.job):
            raise self._refuse(Reason.JOB, "another job")
        if meant != self._identity.number or sender == meant:
            raise self._refuse(Reason.NUMBER, f"node {sender} looks for node {meant}")
        self.peer, self._hello = sender, body
        self._challenge = self._nonce
        challenge = _CHALLENGE.pack(self._nonce, self._proof(Role.SERVER))
        self._emit(Kind.CHALLENGE, b"", challenge)
        self._advance(self.role, Kind.CHALLENGE)

    def _take_challenge(self, body: bytes) -> None:
        self._challenge, proof = _CHALLENGE.unpack(body)
        if not hmac.compare_digest(proof, self._proof(Role.SERVER)):
            raise self._broken("the other side does not know the job's secret")
        self._emit(Kind.PROOF, b"", self._proof(Role.CLIENT))
        self._advance(self.role, Kind.PROOF)
        self._make_keys()

    def _take_proof(self, body: bytes) -> None:
        if not hmac.compare_digest(body, self._proof(Role.CLIENT)):
            raise self._refuse(Reason.PROOF, "does not know the job's secret")
        self._make_keys()
        self.send(Kind.WELCOME, {})

    def _proof(self, role: Role) -> bytes:
        return self._derived(b"proof of the " + role.value.encode())

    def _make_keys(self) -> None:
        for role in Role:
            self._keys[role] = self._derived(b"key of the " + role.value.encode())

    def _derived(self, purpose: bytes) -> bytes:
        said = b"monarch peers 2\0" + purpose + b"\0" + self._hello + self._challenge
        return hmac.digest(self._identity.secret, said, "sha256")

    def _refuse(self, reason: Reason, why: str) -> ProtocolError:
        if self.role is Role.SERVER and not self.trusted:
            self._emit(Kind.REFUSE, b"", _REFUSE.pack(reason))
        return self._strange(why)


_KINDS: Final = frozenset(Kind)
_UNTRUSTED: Final = frozenset(
    {State.START, State.GREETED, State.CHALLENGED, State.PROVED, State.CLOSED}
)


def _digest(job: str) -> bytes:
    return hashlib.sha256(job.encode(errors="surrogateescape")).digest()
