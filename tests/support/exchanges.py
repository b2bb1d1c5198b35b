"""Conversations with stores without a network: bytes in, events out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from monarch.records.stores.exchange import Exchange, Failure, Wanted

GUARD = 0xA5
GUARD_BYTES = 16


@dataclass(slots=True)
class Places:
    """The places of some payloads, with guards between them.

    Args:
        lengths: of each place, by the number of its request.
    """

    lengths: Sequence[int]
    bytes: bytearray = field(default_factory=bytearray)
    starts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        for length in self.lengths:
            self.starts.append(len(self.bytes) + GUARD_BYTES)
            self.bytes += bytes([GUARD]) * (GUARD_BYTES + length)
        self.bytes += bytes([GUARD]) * GUARD_BYTES

    def of(self, number: int) -> memoryview:
        """The place of a request."""
        start = self.starts[number]
        return memoryview(self.bytes)[start : start + self.lengths[number]]

    def check_guards(self) -> None:
        """Nothing was written beside the places."""
        at = 0
        for start, length in zip(self.starts, self.lengths, strict=True):
            assert set(self.bytes[at:start]) <= {GUARD}
            at = start + length
        assert set(self.bytes[at:]) <= {GUARD}


@dataclass(slots=True)
class Heard:
    """The result of a conversation."""

    done: list[int] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    sent: bytes = b""


def hear(exchange: Exchange, pieces: Iterable[bytes]) -> Heard:
    """Feeds an exchange with what it receives, piece by piece."""
    heard = Heard()
    for piece in pieces:
        rest = piece
        while rest:
            space = exchange.space()
            assert len(space) > 0
            count = min(len(space), len(rest))
            space[:count] = rest[:count]
            heard.sent += exchange.advance(count)
            rest = rest[count:]
        heard.done += exchange.done
        heard.failed += exchange.failed
        exchange.done.clear()
        exchange.failed.clear()
    return heard


def cut(stream: bytes, cuts: Iterable[int]) -> list[bytes]:
    """A stream in pieces that end at some places."""
    ends = sorted({min(max(one, 0), len(stream)) for one in cuts} | {len(stream)})
    return [stream[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def ask(
    exchange: Exchange, wanted: Mapping[int, Wanted], places: Places | None
) -> bytes:
    """The bytes of some requests by number, with their places if they have any."""
    return b"".join(
        exchange.request(number, one, None if places is None else places.of(number))
        for number, one in wanted.items()
    )
