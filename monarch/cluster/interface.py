"""The address of this node on one of its networks."""

import fcntl
import ipaddress
import os
import socket
import struct
from pathlib import Path
from typing import Final

from monarch.errors import UsageError

_SIOCGIFADDR: Final = 0x8915
_NAME_BYTES_MAX: Final = 15
_INET6: Final = Path("/proc/net/if_inet6")
_LINK_LOCAL: Final = 0x20


def address_of(interface: str) -> str:
    """Return the address to listen on, and to be reached at, from `peers.interface`.

    An address of this node stands for itself; of an interface it is the IPv4 address,
    or else a global IPv6 address.

    Raises:
        UsageError: it is no interface with an address, and no address of this node.
    """
    found = _own_address(interface) or _ipv4(interface) or _ipv6(interface)
    if found is not None:
        return found
    known = [name for _, name in socket.if_nameindex()]
    state = "has no address" if interface in known else "is not there"
    usable = ", ".join(name for name in known if _ipv4(name) or _ipv6(name))
    raise UsageError(
        f"peers.interface: {interface} {state}, allowed an address of this node or one "
        f"of {usable}"
    )


def own_addresses() -> list[str]:
    """Return the addresses of this node that others may know."""
    names = [name for _, name in socket.if_nameindex()]
    found = [*filter(None, map(_ipv4, names)), *filter(None, map(_ipv6, names))]
    return [text for text in found if not ipaddress.ip_address(text).is_loopback]


def _own_address(text: str) -> str | None:
    try:
        version = ipaddress.ip_address(text).version
    except ValueError:
        return None
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as trial:
            trial.bind((text, 0))
    except OSError:
        return None
    return text


def _ipv4(interface: str) -> str | None:
    name = os.fsencode(interface)
    if len(name) > _NAME_BYTES_MAX:
        return None
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            asked = struct.pack("256s", name)
            answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, asked)
    except OSError:
        return None
    return socket.inet_ntop(socket.AF_INET, answer[20:24])


def _ipv6(interface: str) -> str | None:
    try:
        lines = _INET6.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        number, _, _, scope, _, name = line.split()
        if name == interface and int(scope, 16) != _LINK_LOCAL:
            return socket.inet_ntop(socket.AF_INET6, bytes.fromhex(number))
    return None
