"""The messages that agents exchange once they trust each other, each with its form."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
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
_U63: Final = 2**63 - 1
_U64: Final = 2**64 - 1


class Kind(IntEnum):
    """What a frame is; those below JOIN belong to the handshake."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    REFUSE = 5
    JOIN = 16
    VIEW = 17
    BEAT = 18
    LEAVE = 19
    NOTE = 20
    REPORT = 21
    TAKEN = 22
    MARKS = 23
    HEARD = 24
    ASK = 32
    LATER = 33
    OFFER = 34
    CHUNK = 35
    SOCKET = 48
    YOURS = 49


class Standing(IntEnum):
    """How a node stands to the job."""

    UNSEEN = 0
    JOINED = 1
    LEFT = 2


class Phase(IntEnum):
    """Whether a node gives what it holds, and whether programs of the job run there."""

    STARTING = 0
    RUNNING = 1
    FINISHED = 2


class FieldError(ValueError):
    """The fields of a message are not of its form."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message: what it is, its named fields, and bytes that mean nothing here."""

    kind: Kind
    fields: Mapping[str, Any] = field(default_factory=dict)
    body: bytes = b""


Check = Callable[[object], bool]


def _whole(low: int, high: int) -> Check:
    # type(), because True is an int too.
    return lambda value: type(value) is int and low <= value <= high


def _text(longest: int) -> Check:
    return lambda value: (
        isinstance(value, str) and len(value) <= longest and value.isascii()
    )


def _each(check: Check, most: int) -> Check:
    return lambda value: (
        isinstance(value, list) and len(value) <= most and all(map(check, value))
    )


def _row(*checks: Check) -> Check:
    return lambda value: (
        isinstance(value, list)
        and len(value) == len(checks)
        and all(check(one) for check, one in zip(checks, value, strict=True))
    )


_PLACE: Final = _whole(0, _U63)
_NUMBER: Final = _whole(0, NODES_MAX - 1)
_HOST: Final = _text(HOST_CHARACTERS_MAX)
_PORT: Final = _whole(0, 65535)
_CAPACITIES: Final = _each(_whole(0, _U63), CAPACITIES_MAX)
_PHASE: Final = _whole(0, max(Phase))
_STANDING: Final = _whole(0, max(Standing))
_LIFE: Final = _whole(0, _U63)
_SEALS: Final = _whole(0, 1)
# in the order of monarch.peers.protocol.view.Member
_MEMBER: Final = _row(
    _NUMBER, _STANDING, _HOST, _PORT, _CAPACITIES, _PHASE, _LIFE, _SEALS
)


@dataclass(frozen=True, slots=True)
class Form:
    """The fields that a message has, all of them, and the most its body may be."""

    fields: Mapping[str, Check] = field(default_factory=dict)
    body_max: int = 0


FORMS: Final[Mapping[Kind, Form]] = {
    Kind.WELCOME: Form(),
    Kind.JOIN: Form(
        {
            "host": _HOST,
            "port": _PORT,
            "capacities": _CAPACITIES,
            "phase": _PHASE,
            "life": _LIFE,
            "seals": _SEALS,
        }
    ),
    Kind.VIEW: Form({"members": _each(_MEMBER, MEMBERS_MAX)}),
    Kind.BEAT: Form({"phase": _PHASE}),
    # gone: from the job; else a node that others have joined has joined another
    Kind.LEAVE: Form({"gone": _whole(0, 1)}),
    Kind.NOTE: Form({"number": _NUMBER}, NOTE_BYTES_MAX),
    Kind.REPORT: Form({}, BODY_BYTES_MAX),
    Kind.TAKEN: Form(),
    # some of the sender's marks, from one place in its order to another
    Kind.MARKS: Form(
        {"catalog": _whole(0, _U64), "first": _PLACE, "next": _PLACE},
        MARKS_BYTES_MAX,
    ),
    # all marks before this place of the other side's order are here
    Kind.HEARD: Form({"next": _PLACE}),
    Kind.ASK: Form({"first": _whole(0, CHUNKS_MAX)}),
    Kind.LATER: Form(),
    Kind.OFFER: Form(
        {"digest": _text(64), "bytes": _whole(0, _U63), "chunks": _whole(0, CHUNKS_MAX)}
    ),
    Kind.CHUNK: Form({"packed": _whole(0, 1)}, BODY_BYTES_MAX),
    Kind.SOCKET: Form(),
    Kind.YOURS: Form(),
}


def parse_message(kind: Kind, text: bytes, body: bytes) -> Message:
    """Return the message of a frame.

    Raises:
        FieldError: it is not of the form that its kind has.
    """
    return _checked(Message(kind, _read_fields(text), body))


def format_fields(message: Message) -> bytes:
    """Return the fields of a message as they are sent.

    Raises:
        FieldError: the other end would refuse them.
    """
    fields = _checked(message).fields
    text = json.dumps(fields, separators=(",", ":")).encode() if fields else b""
    if len(text) > FIELDS_BYTES_MAX:
        raise FieldError(f"{message.kind.name}: too long")
    return text


def _checked(message: Message) -> Message:
    kind, form = message.kind, FORMS.get(message.kind)
    if form is None:
        raise FieldError(f"{kind.name}: not after the handshake")
    if message.fields.keys() != form.fields.keys():
        raise FieldError(f"{kind.name}: wrong fields")
    for name, check in form.fields.items():
        if not check(message.fields[name]):
            raise FieldError(f"{kind.name}: {name} is not what it should be")
    if len(message.body) > form.body_max:
        raise FieldError(f"{kind.name}: {len(message.body)} bytes are too many")
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
