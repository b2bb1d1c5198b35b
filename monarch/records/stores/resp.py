"""Redis and compatible servers: GET and GETRANGE by RESP2, in pipelines.

Source: "Redis serialization protocol specification", RESP2. Each request is an array of
bulk strings; a value is one bulk string, an error is a line that begins with '-'.
"""

from __future__ import annotations

from typing import Final

from monarch.records.stores.exchange import (
    ExchangeError,
    Failure,
    Fault,
    InOrder,
    Replies,
    Slot,
    Wanted,
)

BULK_BYTES_MAX: Final = 512 << 20
"""The longest value of Redis."""

# Faults by the first word of an error; other errors are final.
_NO_LONGER: Final = b"-NOAUTH"
_FAULTS: Final = {
    b"BUSY": Fault.BUSY,
    b"LOADING": Fault.AWAY,
    b"MASTERDOWN": Fault.AWAY,
    b"CLUSTERDOWN": Fault.AWAY,
    b"TRYAGAIN": Fault.AWAY,
    b"MOVED": Fault.MOVED,
    b"ASK": Fault.ASKED,
    b"NOAUTH": Fault.DENIED,
    b"NOPERM": Fault.DENIED,
    b"WRONGPASS": Fault.DENIED,
}
_TARGET_WORD: Final = 2
_BULK: Final = ord("$")


def command(*words: bytes) -> bytes:
    """Return a command in RESP2."""
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


class RespExchange(Replies):
    """A conversation with one Redis server.

    Args:
        user: user of an access control list; "": the default user.
        password: password; "": none.
        capacity: maximum requests in flight.
    """

    def __init__(
        self,
        *,
        user: str = "",
        password: str = "",
        database: int = 0,
        capacity: int = 1024,
    ) -> None:
        super().__init__()
        self.capacity = capacity
        self._requests = InOrder()
        self._target: memoryview | bytearray | None = None
        self._in_payload = False
        self._greetings: list[bytes] = []
        self._is_known = bool(password)
        if password:
            given = [user.encode()] * bool(user) + [password.encode()]
            self._greetings.append(command(b"AUTH", *given))
        if database:
            self._greetings.append(command(b"SELECT", b"%d" % database))
        self._unanswered = len(self._greetings)

    def __repr__(self) -> str:
        return f"<RespExchange {len(self._requests)} in flight>"

    @property
    def ready(self) -> bool:
        """Whether the greeting is complete."""
        return not self._unanswered

    @property
    def load(self) -> int:
        """Number of requests in flight."""
        return len(self._requests)

    def greeting(self) -> bytes:
        """Return the first bytes to send."""
        return b"".join(self._greetings)

    def request(self, number: int, wanted: Wanted, place: memoryview | None) -> bytes:
        """Return the bytes of a request."""
        if wanted.asking:
            self._requests.add(Slot(number, wanted, place, skips=1))
            return command(b"ASKING") + _get(wanted)
        self._requests.add(Slot(number, wanted, place))
        return _get(wanted)

    def abandon(self, number: int) -> None:
        """Discard the payload of a request."""
        if self._requests.abandon(number) and self._in_payload:
            self._target = None
            self._inbox.discard()

    def pending(self) -> list[int]:
        """Return the numbers of the requests in flight."""
        return self._requests.numbers()

    def advance(self, count: int) -> bytes:
        """Process received bytes; the response is always empty.

        Raises:
            ExchangeError: the received bytes are no valid reply.
        """
        self._inbox.add(count)
        while self._end_payload() if self._in_payload else self._take_reply():
            pass
        return b""

    def _take_reply(self) -> bool:
        """Process a reply, or its first line; return whether that was complete."""
        if not self._unanswered:
            self._take_whole()
        return self._begin_reply()

    def _take_whole(self) -> None:
        """Process complete values whose places have the same length.

        `_begin_reply` and `_end_payload` do the same with six calls for each value.
        """
        slots, done = self._requests.slots, self.done
        received, view, begin, end = self._inbox.received()
        while slots:
            slot = slots[0]
            place = slot.place
            line_end = received.find(b"\r\n", begin, end)
            if line_end < 0 or place is None or slot.skips or received[begin] != _BULK:
                break
            first = line_end + 2
            last = first + len(place)
            if last + 2 > end or received[begin + 1 : line_end] != b"%d" % len(place):
                break
            if received[last : last + 2] != b"\r\n":
                break
            place[:] = view[first:last]
            begin = last + 2
            done.append(slot.number)
            slots.popleft()
        self._inbox.skip_to(begin)

    def _end_payload(self) -> bool:
        """Continue a payload; return whether it is complete, including its end."""
        inbox = self._inbox
        if not inbox.filled():
            return False
        end = inbox.take(2)
        if end is None:
            return False
        if end != b"\r\n":
            raise ExchangeError("a value is longer than the reply says")
        self._in_payload = False
        slot = self._requests.end()
        if slot.keeps and self._target is not None:
            if isinstance(self._target, bytearray):
                self.loose[slot.number] = self._target
            self.done.append(slot.number)
        self._target = None
        return True

    def _begin_reply(self) -> bool:
        """Process the first line of a reply; return whether it was complete."""
        line = self._inbox.line()
        if line is None:
            return False
        if self._unanswered:
            self._greeted(line)
        elif self._requests.first().skips:
            self._requests.first().skips -= 1
        elif line[:1] == b"$":
            self._begin_value(line)
        elif line[:1] == b"-":
            self._take_error(line)
        else:
            raise ExchangeError(f"a reply begins with {line[:20]!r}")
        return True

    def _greeted(self, line: bytes) -> None:
        self._unanswered -= 1
        if line[:1] == b"-" and not self.refusal:
            self.refusal = line[1:].decode(errors="replace")
        elif line[:1] not in b"+-":
            raise ExchangeError("the server does not speak RESP")

    def _begin_value(self, line: bytes) -> None:
        length = _length_of(line)
        slot = self._requests.first()
        if length < 0:
            self._fail(Fault.MISSING, "no such key", "")
            return
        try:
            self._target = slot.accept(length)
        except ValueError as error:
            self.failed.append(Failure(slot.number, Fault.CHANGED, str(error)))
            slot.keeps, self._target = False, None
        target = None if self._target is None else memoryview(self._target)
        self._inbox.expect(length, target)
        self._in_payload = True

    def _take_error(self, line: bytes) -> None:
        fault, text, target = _fault_of(line)
        if line.startswith(_NO_LONGER) and self._is_known:
            # The password has changed: the next connection rereads it.
            fault, self.ended = Fault.FAILED, True
        self._fail(fault, text, target)

    def _fail(self, fault: Fault, text: str, target: str) -> None:
        slot = self._requests.end()
        if slot.keeps:
            self.failed.append(Failure(slot.number, fault, text, target))


def _get(wanted: Wanted) -> bytes:
    key, length = wanted.key, len(wanted.key)
    if wanted.length < 0 or wanted.whole:
        return b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (length, key)
    last = b"%d" % (wanted.offset + wanted.length - 1)
    return command(b"GETRANGE", key, b"%d" % wanted.offset, last)


def _length_of(line: bytes) -> int:
    digits = line[1:]
    if digits == b"-1":
        return -1
    if not digits.isdigit() or int(digits) > BULK_BYTES_MAX:
        raise ExchangeError(f"a reply has the length {digits[:20]!r}")
    return int(digits)


def _fault_of(line: bytes) -> tuple[Fault, str, str]:
    """Return the fault of an error, its text, and the server that has the object."""
    words = line[1:].split(b" ")
    fault = _FAULTS.get(words[0], Fault.REFUSED)
    target = ""
    if fault in (Fault.MOVED, Fault.ASKED) and len(words) > _TARGET_WORD:
        target = words[_TARGET_WORD].decode(errors="replace")
    return fault, line[1:].decode(errors="replace"), target
