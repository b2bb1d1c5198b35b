"""The protocol between agents: bytes in, messages out, without socket or clock."""

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
    TOKENS_MAX,
    FieldError,
    Kind,
    Message,
    Phase,
    Role,
    Standing,
    State,
    parse_message,
)
from monarch.peers.protocol.readers import Held, Lease, Need, ReaderTokens
from monarch.peers.protocol.view import Member, View

__all__ = [
    "BODY_BYTES_MAX",
    "FILL_FREE",
    "NODES_MAX",
    "NONCE_BYTES",
    "NOTE_BYTES_MAX",
    "TOKENS_MAX",
    "AlteredError",
    "Conversation",
    "FieldError",
    "Held",
    "Identity",
    "Kind",
    "Lease",
    "MarkLog",
    "MarkSync",
    "Member",
    "Message",
    "Need",
    "Phase",
    "ProtocolError",
    "ReaderTokens",
    "Refusal",
    "RefusedError",
    "Role",
    "Standing",
    "State",
    "View",
    "parse_message",
]
