"""Which nodes keep and own each File, and in which order nodes are asked for it."""

from monarch.placement.placement import Mode, Node, Placement

__all__ = [
    "Mode",
    "Node",
    "Placement",
]
