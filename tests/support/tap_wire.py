"""A program that is a node's link: frames pass it late, or with a flipped bit.

`tap_wire.py NODE_NAMESPACE SWITCH_NAMESPACE` makes `eth0` in one and `tap` in the
other, says "ready", and obeys lines on its standard input:

    late SECONDS    frames that leave the node arrive so much later
    flip COUNT      one bit of every COUNTth large TCP segment that leaves the node is
                    flipped, with the checksum that hides it from TCP; 0 ends that
    count           print how many segments were
"""

import ctypes
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque
from pathlib import Path

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
FRAME_BYTES_MAX = 65536
BURST_FRAMES_MAX = 256
ETHERNET_BYTES, IPV4, TCP = 14, b"\x08\x00", 6
CHECKSUM_PLACE = 16
# Smaller segments belong to the control plane, or are the head of a frame.
LARGE_BYTES = 1000


def open_tap(namespace: str, name: str) -> int:
    """Make a device in a network namespace and return its other end."""
    libc = ctypes.CDLL(None, use_errno=True)
    space = os.open(namespace, os.O_RDONLY)
    if libc.setns(space, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), namespace)
    os.close(space)
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    request = struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI)
    fcntl.ioctl(fd, TUNSETIFF, request)
    return fd


class Wire:
    """Both directions of the link and what is done to one of them."""

    def __init__(self, node: int, switch: int) -> None:
        self.node = node
        self.switch = switch
        self.late_s = 0.0
        self.flip_every = 0
        self.large = 0
        self.flipped = 0
        self.waiting: deque[tuple[float, bytes]] = deque()

    def run(self) -> None:
        """Carry frames until the standard input ends."""
        orders = b""
        while True:
            due_s = self.waiting[0][0] - time.monotonic() if self.waiting else None
            timeout_s = None if due_s is None else max(0.0, due_s)
            ends = [self.node, self.switch, 0]
            ready = select.select(ends, [], [], timeout_s)[0]
            if self.switch in ready:
                for frame in frames(self.switch):
                    send(self.node, frame)
            if self.node in ready:
                self.take()
            self.deliver()
            if 0 in ready:
                if not (piece := os.read(0, 4096)):
                    return
                *lines, orders = (orders + piece).split(b"\n")
                for line in lines:
                    self.obey(line.decode())

    def obey(self, line: str) -> None:
        """Execute the order of a line of the standard input."""
        match line.split():
            case ["late", value]:
                self.late_s = float(value)
            case ["flip", value]:
                self.flip_every = int(value)
            case ["count"]:
                print(self.flipped, flush=True)
            case _:
                raise ValueError(line)

    def take(self) -> None:
        """Take frames from the node; they are due when they have been late enough."""
        for frame in frames(self.node):
            if self.flip_every and is_large(frame):
                self.large += 1
                if self.large % self.flip_every == 0:
                    frame = flipped(frame)
                    self.flipped += 1
            self.waiting.append((time.monotonic() + self.late_s, frame))

    def deliver(self) -> None:
        """Pass on the frames that are due."""
        while self.waiting and self.waiting[0][0] <= time.monotonic():
            send(self.switch, self.waiting.popleft()[1])


def frames(end: int) -> list[bytes]:
    """Return the frames that wait at one end, up to a number."""
    found: list[bytes] = []
    while len(found) < BURST_FRAMES_MAX:
        try:
            found.append(os.read(end, FRAME_BYTES_MAX))
        except BlockingIOError:
            break
    return found


def send(end: int, frame: bytes) -> None:
    """Put a frame on one end; a link that is down or full loses it."""
    try:
        os.write(end, frame)
    except OSError:
        return


def is_large(frame: bytes) -> bool:
    """Whether this is a TCP segment with many bytes."""
    is_tcp = frame[12:14] == IPV4 and frame[ETHERNET_BYTES + 9] == TCP
    return is_tcp and len(frame) - tcp_place(frame) >= LARGE_BYTES


def tcp_place(frame: bytes) -> int:
    """Where the TCP header of an IPv4 frame begins."""
    return ETHERNET_BYTES + 4 * (frame[ETHERNET_BYTES] & 15)


def flipped(frame: bytes) -> bytes:
    """Return a TCP frame with one bit of a late byte flipped, and a right checksum."""
    changed = bytearray(frame)
    tcp = tcp_place(frame)
    place = tcp + (len(frame) - tcp) // 4 * 2  # even from the header on
    old = int.from_bytes(changed[place : place + 2])
    changed[place] ^= 1
    new = int.from_bytes(changed[place : place + 2])
    at = slice(tcp + CHECKSUM_PLACE, tcp + CHECKSUM_PLACE + 2)
    # RFC 1624: the complement of (complement of old sum + complement of old + new).
    total = (~int.from_bytes(changed[at]) & 0xFFFF) + (~old & 0xFFFF) + new
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    changed[at] = (~total & 0xFFFF).to_bytes(2)
    return bytes(changed)


def main() -> None:
    """Be the link of the node whose namespace comes first."""
    node, switch = map(str, map(Path, sys.argv[1:3]))
    wire = Wire(open_tap(node, "eth0"), open_tap(switch, "tap"))
    print("ready", flush=True)
    wire.run()


if __name__ == "__main__":
    main()
