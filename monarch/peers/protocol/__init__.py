"""What agents say to each other: bytes in, messages out, no socket and no clock."""

from monarch.peers.protocol.conversation import (
    NONCE_BYTES,
    AlteredError,
    Conversation,
    Identity,
    ProtocolError,
    Reason,
    RefusedError,
    Role,
    State,
)
from monarch.peers.protocol.marks import Journal, Telling
from monarch.peers.protocol.messages import (
    BODY_BYTES_MAX,
    NODES_MAX,
    NOTE_BYTES_MAX,
    FieldError,
    Kind,
    Message,
    Phase,
    Standing,
    parse_message,
)
from monarch.peers.protocol.view import Member, View

__all__ = [
    "BODY_BYTES_MAX",
    "NODES_MAX",
    "NONCE_BYTES",
    "NOTE_BYTES_MAX",
    "AlteredError",
    "Conversation",
    "FieldError",
    "Identity",
    "Journal",
    "Kind",
    "Member",
    "Message",
    "Phase",
    "ProtocolError",
    "Reason",
    "RefusedError",
    "Role",
    "Standing",
    "State",
    "Telling",
    "View",
    "parse_message",
]
