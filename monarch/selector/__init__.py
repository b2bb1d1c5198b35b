"""Which codec a packed Tier uses: decided by values alone."""

from monarch.selector.rules import (
    Candidate,
    Choice,
    Judged,
    Link,
    Load,
    Rule,
    choose,
)
from monarch.selector.sample import PIECES_MAX, PIECES_MIN, Sample, draw

__all__ = [
    "PIECES_MAX",
    "PIECES_MIN",
    "Candidate",
    "Choice",
    "Judged",
    "Link",
    "Load",
    "Rule",
    "Sample",
    "choose",
    "draw",
]
