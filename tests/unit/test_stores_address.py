"""Addresses of stores: their parts, and that they never contain a secret."""

import pickle
import ssl
from pathlib import Path

import pytest

from monarch.records.errors import RecordsError
from monarch.records.stores.address import (
    PASSWORD,
    PASSWORD_FILE,
    USER,
    Login,
    StoreAddress,
    login_of,
)


@pytest.mark.parametrize(
    ("text", "hosts", "path", "more"),
    [
        ("redis://h", (("h", 6379),), "", {}),
        ("redis://h:7/3?index=a", (("h", 7),), "3", {"options": {"index": "a"}}),
        ("rediss://me@h", (("h", 6379),), "", {"user": "me", "encrypted": True}),
        ("redis://[::1]:7,b", (("::1", 7), ("b", 6379)), "", {}),
        ("redis://[fe80::1]", (("fe80::1", 6379),), "", {}),
        ("cassandra://a,b:9/ks.t", (("a", 9042), ("b", 9)), "ks.t", {}),
        ("cassandras://a/ks.t", (("a", 9042),), "ks.t", {"encrypted": True}),
        ("REDIS://h/a%20b", (("h", 6379),), "a b", {}),
    ],
)
def test_an_address_locates_a_store(text, hosts, path, more) -> None:
    address = StoreAddress.parse(text)

    assert (address.hosts, address.path) == (hosts, path)
    for name, value in more.items():
        assert getattr(address, name) == value
    assert StoreAddress.parse(str(address)).hosts == hosts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("redis://me:hush@h", f"set {PASSWORD_FILE}"),
        ("redis://:hush@h", f"set {PASSWORD_FILE}"),
        ("redis://h?password=hush", "do not put password= into"),
        ("cassandra://h/ks.t?token=hush", "do not put token= into"),
        ("redis://h?indx=a", "unknown option indx=; use one of ca, cert, index"),
        ("mongodb://h", "mongodb:// is not the scheme of a store; use redis://"),
        ("redis://h:0", "'h:0' is not HOST"),
        ("redis://h:x", "'h:x' is not HOST"),
        ("redis://", "'' is not HOST"),
        ("redis://a,,b", "'' is not HOST"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(text: str, words: str) -> None:
    with pytest.raises(RecordsError) as raised:
        StoreAddress.parse(text)

    assert words in str(raised.value)
    assert "hush" not in str(raised.value)


def secret(folder: Path, mode: int = 0o600) -> Path:
    """A file with a password."""
    file = folder / "password"
    file.write_text("hush\n")
    file.chmod(mode)
    return file


def test_a_password_is_read_from_a_file_or_the_environment(tmp_path: Path) -> None:
    plain = StoreAddress.parse("redis://h")
    named = StoreAddress.parse(f"redis://me@h?password_file={secret(tmp_path)}")
    environ = {PASSWORD: "other", USER: "you"}

    assert login_of(plain, {}) == Login()
    assert login_of(plain, environ) == Login("you", "other")
    assert login_of(named, environ) == Login("me", "hush")
    by_file = {PASSWORD_FILE: str(tmp_path / "password"), PASSWORD: "other"}
    assert login_of(plain, by_file) == Login("", "hush")


def test_a_password_is_in_nothing_that_is_shown_or_sent(tmp_path: Path) -> None:
    address = StoreAddress.parse(f"redis://me@h?password_file={secret(tmp_path)}")
    login = login_of(address, {})

    assert login.password == "hush"
    for shown in (repr(login), str(login), repr(address), str(address)):
        assert "hush" not in shown
    assert b"hush" not in pickle.dumps(address)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = secret(tmp_path, mode)

    with pytest.raises(RecordsError, match="chmod 600"):
        login_of(StoreAddress.parse("redis://h"), {PASSWORD_FILE: str(file)})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordsError, match=f"{tmp_path}/no.*No such file"):
        login_of(StoreAddress.parse("redis://h"), {PASSWORD_FILE: f"{tmp_path}/no"})


def test_servers_are_verified_unless_nothing_is_encrypted(tmp_path: Path) -> None:
    [plain] = StoreAddress.parse("redis://h").endpoints()
    [encrypted] = StoreAddress.parse("rediss://h").endpoints()

    assert plain.tls is None
    assert encrypted.tls is not None
    assert encrypted.tls.verify_mode is ssl.CERT_REQUIRED
    assert encrypted.tls.check_hostname
    with pytest.raises(RecordsError, match=f"{tmp_path}/ca.pem"):
        StoreAddress.parse(f"rediss://h?ca={tmp_path}/ca.pem").endpoints()
