"""Choice of the codec of a packed Tier: pure functions of measured values."""

from monarch.selector.rules import (
    Candidate,
    Choice,
    Judged,
    Link,
    Load,
    Rule,
    choose,
)
from monarch.selector.sample import PIECES_MAX, Sample, draw, sample_bytes

__all__ = [
    "PIECES_MAX",
    "Candidate",
    "Choice",
    "Judged",
    "Link",
    "Load",
    "Rule",
    "Sample",
    "choose",
    "draw",
    "sample_bytes",
]
