"""The nodes that keep and own each unit, and the order of requests for it.

A unit is placed as a whole: a small File, or an Extent of a large one.
"""

from monarch.placement.placement import Copies, Mode, Node, Placement
from monarch.placement.units import Units

__all__ = [
    "Copies",
    "Mode",
    "Node",
    "Placement",
    "Units",
]
