"""The messages between agents: their kinds, their order and the schema of each."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, Final, NoReturn

BODY_BYTES_MAX: Final = 1 << 20
FIELDS_BYTES_MAX: Final = 64 << 10
NOTE_BYTES_MAX: Final = 4 << 10
MARKS_BYTES_MAX: Final = 64 << 10
NODES_MAX: Final = 65536
MEMBERS_MAX: Final = 128
CHUNKS_MAX: Final = 1 << 20
HOST_CHARACTERS_MAX: Final = 255
CAPACITIES_MAX: Final = 8
TOKENS_MAX: Final = 1 << 16
FILL_FREE: Final = 255
"""As a limit of background copies: unlimited."""
_U63: Final = 2**63 - 1
_U64: Final = 2**64 - 1


class Kind(IntEnum):
    """The kind of a message; those below JOIN belong to the handshake."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    REFUSE = 5
    JOIN = 16
    VIEW = 17
    HEARTBEAT = 18
    LEAVE = 19
    NOTE = 20
    REPORT = 21
    REPORT_ACK = 22
    MARKS = 23
    MARKS_ACK = 24
    HELD = 25
    LEASE = 26
    FETCH = 32
    WAIT = 33
    OFFER = 34
    CHUNK = 35
    SOCKET = 48
    SOCKET_READY = 49


class Role(Enum):
    """The side of a connection; the client connects to the server."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def other(self) -> "Role":
        """Return the other side."""
        return Role.SERVER if self is Role.CLIENT else Role.CLIENT


class State(Enum):
    """The state of a conversation, the same on both sides."""

    START = "start"
    GREETED = "greeted"
    CHALLENGED = "challenged"
    PROVED = "proved"
    OPEN = "open"
    JOINED = "joined"
    FETCHING = "fetching"
    RECEIVING = "receiving"
    SOCKET_ASKED = "socket asked"
    HANDED_OVER = "handed over"
    CLOSED = "closed"


_C, _S = Role.CLIENT, Role.SERVER

NEXT: Final[Mapping[tuple[State, Role, Kind], State]] = {
    (State.START, _C, Kind.HELLO): State.GREETED,
    (State.GREETED, _S, Kind.CHALLENGE): State.CHALLENGED,
    (State.GREETED, _S, Kind.REFUSE): State.CLOSED,
    (State.CHALLENGED, _C, Kind.PROOF): State.PROVED,
    (State.PROVED, _S, Kind.WELCOME): State.OPEN,
    (State.PROVED, _S, Kind.REFUSE): State.CLOSED,
    # a session with the hub
    (State.OPEN, _C, Kind.JOIN): State.JOINED,
    (State.JOINED, _C, Kind.HEARTBEAT): State.JOINED,
    (State.JOINED, _S, Kind.HEARTBEAT): State.JOINED,
    (State.JOINED, _S, Kind.VIEW): State.JOINED,
    (State.JOINED, _C, Kind.NOTE): State.JOINED,
    (State.JOINED, _S, Kind.NOTE): State.JOINED,
    (State.JOINED, _C, Kind.REPORT): State.JOINED,
    (State.JOINED, _S, Kind.REPORT_ACK): State.JOINED,
    (State.JOINED, _C, Kind.MARKS): State.JOINED,
    (State.JOINED, _S, Kind.MARKS): State.JOINED,
    (State.JOINED, _C, Kind.MARKS_ACK): State.JOINED,
    (State.JOINED, _S, Kind.MARKS_ACK): State.JOINED,
    (State.JOINED, _C, Kind.HELD): State.JOINED,
    (State.JOINED, _S, Kind.LEASE): State.JOINED,
    (State.JOINED, _C, Kind.LEAVE): State.CLOSED,
    (State.JOINED, _S, Kind.LEAVE): State.CLOSED,
    # the Catalog
    (State.OPEN, _C, Kind.FETCH): State.FETCHING,
    (State.FETCHING, _S, Kind.WAIT): State.FETCHING,
    (State.FETCHING, _S, Kind.OFFER): State.RECEIVING,
    (State.RECEIVING, _S, Kind.WAIT): State.RECEIVING,
    (State.RECEIVING, _S, Kind.CHUNK): State.RECEIVING,
    # the socket itself, for the data plane
    (State.OPEN, _C, Kind.SOCKET): State.SOCKET_ASKED,
    (State.SOCKET_ASKED, _S, Kind.SOCKET_READY): State.HANDED_OVER,
}
"""The state after a message, by the state before it and the side that sent it."""


class Standing(IntEnum):
    """Whether a node has joined the job."""

    UNSEEN = 0
    JOINED = 1
    LEFT = 2


class Phase(IntEnum):
    """Whether a node serves its Replicas, and whether programs of the job run on it."""

    STARTING = 0
    RUNNING = 1
    FINISHED = 2


class FieldError(ValueError):
    """The fields of a message do not match its schema."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its kind, its named fields, and an opaque body."""

    kind: Kind
    fields: Mapping[str, Any] = field(default_factory=dict)
    body: bytes = b""


Check = Callable[[object], bool]


def _integer(low: int, high: int) -> Check:
    # type(), because True is an int too.
    return lambda value: type(value) is int and low <= value <= high


def _text(length_max: int) -> Check:
    return lambda value: (
        isinstance(value, str) and len(value) <= length_max and value.isascii()
    )


def _list(check: Check, count_max: int) -> Check:
    return lambda value: (
        isinstance(value, list) and len(value) <= count_max and all(map(check, value))
    )


def _row(*checks: Check) -> Check:
    return lambda value: (
        isinstance(value, list)
        and len(value) == len(checks)
        and all(check(one) for check, one in zip(checks, value, strict=True))
    )


_POSITION: Final = _integer(0, _U63)
_NUMBER: Final = _integer(0, NODES_MAX - 1)
_TOKENS: Final = _integer(0, TOKENS_MAX)
_HOST: Final = _text(HOST_CHARACTERS_MAX)
_PORT: Final = _integer(0, 65535)
_CAPACITIES: Final = _list(_integer(0, _U63), CAPACITIES_MAX)
_PHASE: Final = _integer(0, max(Phase))
_STANDING: Final = _integer(0, max(Standing))
_LIFE: Final = _integer(0, _U63)
_SEALS: Final = _integer(0, 1)
# The order is that of monarch.peers.protocol.view.Member.
_MEMBER: Final = _row(
    _NUMBER, _STANDING, _HOST, _PORT, _CAPACITIES, _PHASE, _LIFE, _SEALS
)


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of a message, all of them required, and the limit of its body."""

    fields: Mapping[str, Check] = field(default_factory=dict)
    body_max: int = 0


SCHEMAS: Final[Mapping[Kind, Schema]] = {
    Kind.WELCOME: Schema(),
    Kind.JOIN: Schema(
        {
            "host": _HOST,
            "port": _PORT,
            "capacities": _CAPACITIES,
            "phase": _PHASE,
            "life": _LIFE,
            "seals": _SEALS,
        }
    ),
    Kind.VIEW: Schema({"members": _list(_MEMBER, MEMBERS_MAX)}),
    # fill: how many files the receiver may copy in the background, for the sake of
    # programs of the sender, or of nodes that have reported to it
    Kind.HEARTBEAT: Schema({"phase": _PHASE, "fill": _integer(0, FILL_FREE)}),
    # gone: the sender leaves the job; if not, it was a hub and has joined another node
    Kind.LEAVE: Schema({"gone": _integer(0, 1)}),
    Kind.NOTE: Schema({"number": _NUMBER}, NOTE_BYTES_MAX),
    Kind.REPORT: Schema({}, BODY_BYTES_MAX),
    Kind.REPORT_ACK: Schema(),
    # marks of the sender, from one position of its log to another
    Kind.MARKS: Schema(
        {"catalog": _integer(0, _U64), "first": _POSITION, "next": _POSITION},
        MARKS_BYTES_MAX,
    ),
    # tokens to read the origin: those that the sender could use, those that it may use,
    # and the lease of these
    Kind.HELD: Schema(
        {"demand": _TOKENS, "fill": _TOKENS, "tokens": _TOKENS, "serial": _POSITION}
    ),
    # how many of them the receiver may use
    Kind.LEASE: Schema({"tokens": _TOKENS, "serial": _POSITION}),
    # all marks before this position of the other side's log were received
    Kind.MARKS_ACK: Schema({"next": _POSITION}),
    Kind.FETCH: Schema({"first": _integer(0, CHUNKS_MAX)}),
    Kind.WAIT: Schema(),
    Kind.OFFER: Schema(
        {
            "digest": _text(64),
            "bytes": _integer(0, _U63),
            "chunks": _integer(0, CHUNKS_MAX),
        }
    ),
    Kind.CHUNK: Schema({"packed": _integer(0, 1)}, BODY_BYTES_MAX),
    Kind.SOCKET: Schema(),
    Kind.SOCKET_READY: Schema(),
}


def parse_message(kind: Kind, text: bytes, body: bytes) -> Message:
    """Return the message of a frame.

    Raises:
        FieldError: it does not match the schema of its kind.
    """
    return _checked(Message(kind, _read_fields(text), body))


def format_fields(message: Message) -> bytes:
    """Return the encoded fields of a message.

    Raises:
        FieldError: they do not match the schema of its kind.
    """
    fields = _checked(message).fields
    text = json.dumps(fields, separators=(",", ":")).encode() if fields else b""
    if len(text) > FIELDS_BYTES_MAX:
        raise FieldError(f"{message.kind.name}: too long")
    return text


def _checked(message: Message) -> Message:
    kind, schema = message.kind, SCHEMAS.get(message.kind)
    if schema is None:
        raise FieldError(f"{kind.name}: is a message of the handshake")
    if message.fields.keys() != schema.fields.keys():
        raise FieldError(f"{kind.name}: wrong fields")
    for name, check in schema.fields.items():
        if not check(message.fields[name]):
            raise FieldError(f"{kind.name}: {name} is not valid")
    if len(message.body) > schema.body_max:
        raise FieldError(f"{kind.name}: {len(message.body)} bytes are too long")
    return message


def _read_fields(text: bytes) -> Mapping[str, Any]:
    if not text:
        return {}
    try:
        fields = json.loads(text.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FieldError("fields are not JSON") from error
    if not isinstance(fields, dict):
        raise FieldError("fields are not an object")
    return fields


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
