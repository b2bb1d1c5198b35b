"""The protocol between agents: bytes in, messages out, no socket and no clock."""

from monarch.peers.protocol.conversation import (
    NONCE_BYTES,
    AlteredError,
    Conversation,
    Identity,
    ProtocolError,
    Refusal,
    RefusedError,
)
from monarch.peers.protocol.marks import MarkLog, MarkSync
from monarch.peers.protocol.messages import (
    BODY_BYTES_MAX,
    FILL_FREE,
    NODES_MAX,
    NOTE_BYTES_MAX,
    FieldError,
    Kind,
    Message,
    Phase,
    Role,
    Standing,
    State,
    parse_message,
)
from monarch.peers.protocol.view import Member, View

__all__ = [
    "BODY_BYTES_MAX",
    "FILL_FREE",
    "NODES_MAX",
    "NONCE_BYTES",
    "NOTE_BYTES_MAX",
    "AlteredError",
    "Conversation",
    "FieldError",
    "Identity",
    "Kind",
    "MarkLog",
    "MarkSync",
    "Member",
    "Message",
    "Phase",
    "ProtocolError",
    "Refusal",
    "RefusedError",
    "Role",
    "Standing",
    "State",
    "View",
    "parse_message",
]
