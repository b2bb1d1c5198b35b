"""All time-outs, intervals and pauses between the agents of a job, in seconds.

The time-out of a request for the bytes of a File is `peers.timeout` of the
configuration; the pauses without requests to a failed peer are in `stager/breaker.py`.

Numbers per second limit all nodes of a large job together: the intervals grow with the
number of nodes.
"""

from collections.abc import Iterator
from typing import Final

# -- connections ----------------------------------------------------------------------

CONNECT_S: Final = 3.0
"""Until another node has accepted a connection."""
HANDSHAKE_S: Final = 3.0
"""Until both ends of a new connection have proved their knowledge of the secret."""
REQUEST_S: Final = 3.0
"""Until the first request on an accepted connection."""
SEND_S: Final = 5.0
"""Until a peer has accepted a message."""
DRAIN_S: Final = 0.5
"""Until the last messages of a closing connection have been received."""
STAGGER_S: Final = 0.25
"""Between attempts to connect to several addresses of one node."""
ACCEPT_PAUSE_S: Final = 0.1
"""After a failed accept: the process may have no free descriptor."""
REFUSALS_S: Final = 1.0
"""Any process can connect repeatedly: all refusals in this time make one log line."""

# -- heartbeats -----------------------------------------------------------------------

HEARTBEAT_S: Final = 0.5
"""Between heartbeats to the hub, in jobs that are not very large."""
HEARTBEATS_PER_S: Final = 2000
"""The hub receives those of all nodes; more would keep its event loop busy."""
HEARTBEATS_MISSED: Final = 5
"""A peer that has missed this many heartbeats has left."""
RESEND_HEARTBEATS: Final = 2
"""Marks that were not acknowledged within this many heartbeats are sent again."""
BATCH_S: Final = 0.01
"""Changes within this time are sent in one message."""
BATCHES_PER_S: Final = 4000
"""The largest number of such messages that a hub sends."""

# -- the hub --------------------------------------------------------------------------

RETRY_S: Final = 0.5
"""Between attempts to reach the hub, in jobs that are not very large."""
FIRST_RETRY_S: Final = 0.02
"""After the first attempt: all nodes of a job start at the same time, but perhaps the
hub a moment later than others. Each further pause is doubled, up to RETRY_S."""
RETRIES_PER_S: Final = 2000
"""The largest number of attempts of all nodes to reach the hub."""
LOST_HUB_S: Final = 1.5
"""How long a lost hub, which may only be stopped, is tried before the next one.

Until then nodes whose programs have ended receive nothing from other nodes.
"""
CLOSE_S: Final = 1.0
"""Until the last messages of a leaving node were acknowledged."""
POLL_S: Final = 0.01
"""The interval of checks for this."""
CATALOG_RETRY_S: Final = 0.5
"""Until a node retries a failed transfer of the Catalog."""


def hub_pauses_s(nodes: int) -> Iterator[float]:
    """Yield the pauses between a node's attempts to reach the hub of `nodes` nodes."""
    fair_s = nodes / RETRIES_PER_S
    pause_s = FIRST_RETRY_S
    while True:
        yield max(fair_s, pause_s)
        pause_s = min(2 * pause_s, RETRY_S)
