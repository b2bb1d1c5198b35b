"""The addresses of this node's network interfaces."""

import ipaddress
import socket

from monarch.errors import UsageError


def address_of(interface: str) -> str:
    """Return the address to listen on, and to be reached at, from `peers.interface`.

    An address of this node is returned unchanged; an interface is replaced by its first
    IPv4 address, or else by its first IPv6 address that is not link-local.

    Raises:
        UsageError: it is neither an interface with an address nor an own address.
    """
    if _is_own_address(interface):
        return interface
    known = _addresses()
    if found := known.get(interface):
        return found[0]
    problem = "has no address" if interface in known else "does not exist"
    usable = ", ".join(name for name, addresses in known.items() if addresses)
    raise UsageError(
        f"peers.interface: {interface} {problem}; use an address of this node or one "
        f"of {usable}"
    )


def own_addresses() -> list[str]:
    """Return an address of each kind of each interface, IPv4 first; no loopback."""
    found = [address for addresses in _addresses().values() for address in addresses]
    shared = [a for a in found if not ipaddress.ip_address(a).is_loopback]
    return sorted(shared, key=lambda address: ":" in address)


def _addresses() -> dict[str, list[str]]:
    """Return the first IPv4 and the first IPv6 address of each interface, by name."""
    # Not at the top: the import takes 6 to 9 ms, which a job of one node need not pay.
    import psutil

    found: dict[str, list[str]] = {}
    for name, rows in psutil.net_if_addrs().items():
        v4 = [row.address for row in rows if row.family == socket.AF_INET]
        v6 = [row.address for row in rows if row.family == socket.AF_INET6]
        routed = [a for a in v6 if not ipaddress.ip_address(a).is_link_local]
        found[name] = [*v4[:1], *routed[:1]]
    return found


def _is_own_address(text: str) -> bool:
    try:
        version = ipaddress.ip_address(text).version
    except ValueError:
        return False
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((text, 0))
    except OSError:
        return False
    return True
