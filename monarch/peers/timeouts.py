"""All time-outs, intervals and pauses between the agents of a job, in seconds.

The time-out of a request for the bytes of a File is `peers.timeout` of the
configuration; how long a peer that fails is not asked is in `stager/sources.py`.

Numbers per second bound what all nodes of a large job do together: with more nodes the
intervals grow.
"""

from collections.abc import Iterator
from typing import Final

# -- connections ----------------------------------------------------------------------

CONNECT_S: Final = 3.0
"""Until another node has accepted a connection."""
HANDSHAKE_S: Final = 3.0
"""Until both ends of a new connection have proved that they know the secret."""
REQUEST_S: Final = 3.0
"""Until a connection that was accepted says what it is for."""
SEND_S: Final = 5.0
"""Until a peer has taken a message."""
DRAIN_S: Final = 0.5
"""Until the last messages of a connection that is closed have left."""
STAGGER_S: Final = 0.25
"""Between attempts to connect to several addresses of one node."""
ACCEPT_PAUSE_S: Final = 0.1
"""After a failed accept: the process may have no free descriptor."""
REFUSALS_S: Final = 1.0
"""Any process can connect, over and over: all refusals in this time are one line."""

# -- heartbeats -----------------------------------------------------------------------

HEARTBEAT_S: Final = 0.5
"""Between heartbeats to the hub, in jobs that are not very large."""
HEARTBEATS_PER_S: Final = 2000
"""The hub receives those of all nodes: more would keep its event loop busy."""
HEARTBEATS_MISSED: Final = 5
"""A peer that has sent none for so many of them has left."""
RESEND_HEARTBEATS: Final = 2
"""Marks that were not acknowledged within so many heartbeats are sent again."""
BATCH_S: Final = 0.01
"""Changes within this time are sent in one message."""
BATCHES_PER_S: Final = 4000
"""How many such messages a hub sends at most."""

# -- the hub --------------------------------------------------------------------------

RETRY_S: Final = 0.5
"""Between attempts to reach the hub, in jobs that are not very large."""
FIRST_RETRY_S: Final = 0.02
"""After the first attempt: all nodes of a job start at the same time, the hub a moment
later than others perhaps. Each further pause is twice as long, up to RETRY_S."""
RETRIES_PER_S: Final = 2000
"""How many attempts of all nodes the hub gets at most."""
LOST_HUB_S: Final = 1.5
"""How long a hub that was lost, and is perhaps only stopped, is tried before the next.

Until then nodes whose programs have ended receive nothing from other nodes.
"""
CLOSE_S: Final = 1.0
"""Until the last messages of a node that leaves were acknowledged."""
POLL_S: Final = 0.01
"""How often that is looked at."""
CATALOG_RETRY_S: Final = 0.5
"""Until a node whose transfer of the Catalog has failed tries again."""


def hub_pauses_s(nodes: int) -> Iterator[float]:
    """Yield the pauses between attempts of one of so many nodes to reach the hub."""
    fair_s = nodes / RETRIES_PER_S
    pause_s = FIRST_RETRY_S
    while True:
        yield max(fair_s, pause_s)
        pause_s = min(2 * pause_s, RETRY_S)
