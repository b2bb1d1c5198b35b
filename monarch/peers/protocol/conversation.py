"""One connection between two agents as a state machine over bytes.

A frame is a head of 16 bytes, fields as JSON, a body, and after the handshake a tag.
The handshake proves to each side, before any other message is accepted, that the other
knows the job's secret *now*: each proof covers a fresh nonce of the side that verifies
it, both node numbers, and the role of the side that made it. Tags are HMACs with a key
derived from this handshake and the sender's role. Each covers the number of frames
before it, so that no frame can be altered, forged, dropped, repeated, reordered or sent
back. The first tag that does not match ends the connection.
"""

import hashlib
import hmac
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from monarch.errors import MonarchError
from monarch.peers.protocol.messages import (
    BODY_BYTES_MAX,
    FIELDS_BYTES_MAX,
    NEXT,
    FieldError,
    Kind,
    Message,
    Role,
    State,
    format_fields,
    parse_message,
)

VERSION: Final = 5
MAGIC: Final = b"MnCt"
NONCE_BYTES: Final = 32
TAG_BYTES: Final = 16

_HEAD: Final = struct.Struct("<4sBBHII")  # magic, version, kind, 0, fields, body
_HELLO: Final = struct.Struct("<32s32sII")  # nonce, digest of the job, from, to
_CHALLENGE: Final = struct.Struct("<32s32s")  # nonce, proof
_REFUSE: Final = struct.Struct("<H")
_COUNT: Final = struct.Struct("<Q")


class ProtocolError(MonarchError):
    """A message is not valid or not allowed here; the connection must end."""


class AlteredError(ProtocolError):
    """A frame of an authenticated node was altered on the network."""


class Refusal(IntEnum):
    """Why a handshake was refused, as sent to the other side."""

    VERSION = 1
    JOB = 2
    NUMBER = 3
    PROOF = 4


_SAME: Final = "install the same Monarch on all nodes"
_REFUSALS: Final = {
    Refusal.VERSION: f"it uses another version of the agents' protocol: {_SAME}",
    Refusal.JOB: "it belongs to another job",
    Refusal.NUMBER: "it is not the expected node",
    Refusal.PROOF: "it has another secret",
}


class RefusedError(ProtocolError):
    """The other side has refused the handshake and sent the reason."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(_REFUSALS[refusal])
        self.refusal = refusal


_EXACT: Final = {
    Kind.HELLO: _HELLO.size,
    Kind.CHALLENGE: _CHALLENGE.size,
    Kind.PROOF: hashlib.sha256().digest_size,
    Kind.REFUSE: _REFUSE.size,
}


@dataclass(frozen=True, slots=True)
class Identity:
    """A node of a job, with the secret that proves it."""

    job: str
    number: int
    secret: bytes

    def __repr__(self) -> str:
        return f"<Identity node {self.number} of {self.job}>"


class Conversation:
    """Encodes and decodes one connection; after any error it remains closed.

    Args:
        nonce: random bytes that were never used before.
        peer: the number of the node that a client connects to; a server receives it.
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
    def authenticated(self) -> bool:
        """Whether the other side has proved its knowledge of the secret."""
        return self.state not in _UNAUTHENTICATED

    @property
    def wants(self) -> int:
        """Return the number of bytes to read next; 0 if nothing more may be read."""
        if self.state in (State.HANDED_OVER, State.CLOSED):
            return 0
        if len(self._buffer) < _HEAD.size:
            return _HEAD.size - len(self._buffer)
        return self._frame_bytes() - len(self._buffer)

    def outgoing(self) -> bytes:
        """Return the bytes to send, each byte once."""
        pending, self._outgoing = bytes(self._outgoing), bytearray()
        return pending

    def send(self, kind: Kind, fields: Mapping[str, Any], body: bytes = b"") -> None:
        """Encode a message; outgoing() then returns its bytes.

        Raises:
            ProtocolError: it may not be sent in this state.
        """
        message = Message(kind, fields, body)
        self._advance(self.role, kind)
        try:
            text = format_fields(message)
        except FieldError as error:
            raise self._close(str(error)) from error
        self._emit(kind, text, body)

    def receive(self, piece: bytes) -> list[Message]:
        """Decode received bytes, in pieces of any size; return complete messages.

        It never buffers more than one frame. Bytes after the last frame of a socket
        that is handed over are in `rest`.

        Raises:
            ProtocolError: the caller must send outgoing(), then end the connection.
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
        if self.state is State.HANDED_OVER:
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
            raise self._reject("not a frame of this protocol")
        if version != VERSION:
            versions = f"version {version} of the agents' protocol, not {VERSION}"
            raise self._refuse(Refusal.VERSION, f"it uses {versions}: {_SAME}")
        sender = self.role.other
        if kind not in _KINDS or (self.state, sender, Kind(kind)) not in NEXT:
            raise self._reject(
                f"message {kind} is not allowed in state {self.state.value}"
            )
        exact = _EXACT.get(Kind(kind))
        if exact is not None and (fields, body) != (0, exact):
            raise self._reject(f"{Kind(kind).name} has a wrong length")
        if fields > FIELDS_BYTES_MAX or body > BODY_BYTES_MAX:
            raise self._reject("a frame is too long")

    def _take_frame(self) -> list[Message]:
        frame, self._buffer = bytes(self._buffer), bytearray()
        *_, number, _, fields, body = _HEAD.unpack_from(frame)
        kind, end = Kind(number), _HEAD.size + fields + body
        if kind in _EXACT:
            return self._take_handshake(kind, frame[_HEAD.size : end])
        tag = self._tag(self.role.other, memoryview(frame)[:end])
        if not hmac.compare_digest(tag, frame[end:]):
            raise self._reject("a frame was altered, repeated or reordered")
        text = frame[_HEAD.size : _HEAD.size + fields]
        try:
            message = parse_message(kind, text, frame[_HEAD.size + fields : end])
        except FieldError as error:
            raise self._close(str(error)) from error
        self._advance(self.role.other, kind)
        return [message]

    def _advance(self, sender: Role, kind: Kind) -> None:
        following = NEXT.get((self.state, sender, kind))
        if following is None:
            raise self._close(f"{kind.name} is not allowed in state {self.state.value}")
        self.state = following

    def _close(self, reason: str) -> ProtocolError:
        self.state = State.CLOSED
        self._buffer.clear()
        return ProtocolError(reason)

    def _reject(self, reason: str) -> ProtocolError:
        """Close the conversation because of bytes that no node of the job sends."""
        authenticated = self.authenticated
        error = self._close(reason)
        return AlteredError(reason) if authenticated else error

    # -- handshake ----------------------------------------------------------------

    def _greet(self) -> None:
        assert self.peer is not None
        job, number = _digest(self._identity.job), self._identity.number
        self._hello = _HELLO.pack(self._nonce, job, number, self.peer)
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
        [refusal] = _REFUSE.unpack(body)
        if refusal not in list(Refusal):
            raise self._close("refused for an unknown reason")
        raise RefusedError(Refusal(refusal))

    def _take_hello(self, body: bytes) -> None:
        _, job, sender, target = _HELLO.unpack(body)
        if job != _digest(self._identity.job):
            raise self._refuse(Refusal.JOB, "another job")
        if target != self._identity.number or sender == target:
            text = f"node {sender} expects node {target} here"
            raise self._refuse(Refusal.NUMBER, text)
        self.peer, self._hello = sender, body
        self._challenge = self._nonce
        challenge = _CHALLENGE.pack(self._nonce, self._proof(Role.SERVER))
        self._emit(Kind.CHALLENGE, b"", challenge)
        self._advance(self.role, Kind.CHALLENGE)

    def _take_challenge(self, body: bytes) -> None:
        self._challenge, proof = _CHALLENGE.unpack(body)
        if not hmac.compare_digest(proof, self._proof(Role.SERVER)):
            raise self._close("the other side does not know the job's secret")
        self._emit(Kind.PROOF, b"", self._proof(Role.CLIENT))
        self._advance(self.role, Kind.PROOF)
        self._make_keys()

    def _take_proof(self, body: bytes) -> None:
        if not hmac.compare_digest(body, self._proof(Role.CLIENT)):
            raise self._refuse(Refusal.PROOF, "does not know the job's secret")
        self._make_keys()
        self.send(Kind.WELCOME, {})

    def _proof(self, role: Role) -> bytes:
        return self._derived(b"proof of the " + role.value.encode())

    def _make_keys(self) -> None:
        for role in Role:
            self._keys[role] = self._derived(b"key of the " + role.value.encode())

    def _derived(self, purpose: bytes) -> bytes:
        covered = purpose + b"\0" + self._hello + self._challenge
        text = b"monarch peers 2\0" + covered
        return hmac.digest(self._identity.secret, text, "sha256")

    def _refuse(self, refusal: Refusal, reason: str) -> ProtocolError:
        if self.role is Role.SERVER and not self.authenticated:
            self._emit(Kind.REFUSE, b"", _REFUSE.pack(refusal))
        return self._reject(reason)


_KINDS: Final = frozenset(Kind)
_UNAUTHENTICATED: Final = frozenset(
    {State.START, State.GREETED, State.CHALLENGED, State.PROVED, State.CLOSED}
)


def _digest(job: str) -> bytes:
    return hashlib.sha256(job.encode(errors="surrogateescape")).digest()
