"""Which node holds and owns which File, and in which order a node fetches its own."""

from monarch.placement.forecast import Forecast, Share, forecast
from monarch.placement.placement import Mode, Node, Placement

__all__ = [
    "Forecast",
    "Mode",
    "Node",
    "Placement",
    "Share",
    "forecast",
]
