"""The addresses of a node by its interfaces."""

import socket
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from monarch.cluster import address_of, own_addresses
from monarch.errors import UsageError


def test_an_interface_resolves_to_its_address():
    assert address_of("lo") == "127.0.0.1"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.7", "0.0.0.0", "::1"])
def test_an_address_of_this_node_resolves_to_itself(address):
    if ":" in address and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")

    assert address_of(address) == address


def test_the_addresses_by_which_others_know_a_node_are_all_its_own():
    found = own_addresses()

    assert not any(text.startswith("127.") for text in found)
    assert [address_of(text) for text in found] == found


@pytest.mark.parametrize("given", ["nope0", "192.0.2.1", "a-very-long-name-0", "ib0:1"])
def test_a_foreign_address_is_one_line_with_the_addresses_of_this_node(given):
    with pytest.raises(UsageError) as refused:
        address_of(given)

    assert str(refused.value).startswith(f"peers.interface: {given} does not exist")
    assert "lo" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_interface_without_ipv4_resolves_to_its_global_ipv6_address(monkeypatch):
    rows = {
        "lo": [(socket.AF_INET, "127.0.0.1")],
        "ib0": [
            (socket.AF_INET6, "fe80::1%ib0"),
            (socket.AF_INET6, "2001:db8::7"),
            (socket.AF_PACKET, "00:00:00:00:00:00"),
        ],
        "ib1": [(socket.AF_INET6, "fe80::2%ib1")],
    }
    found = {
        name: [SimpleNamespace(family=family, address=text) for family, text in given]
        for name, given in rows.items()
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: found)

    assert address_of("ib0") == "2001:db8::7"
    assert own_addresses() == ["2001:db8::7"]
    with pytest.raises(UsageError, match=r"ib1 has no address; .* one of lo, ib0$"):
        address_of("ib1")
