"""Addresses of stores, as users write them, and the secrets that belong to them.

An address never contains a secret: addresses are in command lines, logs, reports and
indexes. Secrets are read from the environment or from a file that only its owner may
read.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from monarch.records.errors import RecordsError
from monarch.records.stores.connection import Endpoint

PASSWORD: Final = "MONARCH_STORE_PASSWORD"
PASSWORD_FILE: Final = "MONARCH_STORE_PASSWORD_FILE"
USER: Final = "MONARCH_STORE_USER"
PORTS: Final = {
    "redis": 6379,
    "rediss": 6379,
    "cassandra": 9042,
    "cassandras": 9042,
    "s3": 443,
    "http": 80,
    "https": 443,
}
"""Ports of the schemes; those that end with an `s` are encrypted."""
_COMMON: Final = frozenset({"password_file", "ca", "cert", "key"})
_OPTIONS: Final = {
    "redis": _COMMON | {"index"},
    "cassandra": _COMMON | {"id", "data", "metadata", "index"},
    "s3": frozenset(
        {"endpoint", "region", "profile", "anonymous", "ca", "cert", "key", "index"}
    ),
    "http": frozenset(),
}
_SECRETS: Final = frozenset({"password", "pass", "pwd", "secret", "token"})
_PORT_MAX: Final = 65535
_MAGIC: Final = "*?["


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """The address of a store.

    Attributes:
        kind: kind of the store, such as "redis".
        hosts: hosts and ports of its servers; the first that answers is used. For S3,
            only its bucket.
        path: the part after the hosts, such as the number of a database.
        options: the options after the `?`.
        user: user name; "": the default user.
        encrypted: whether TLS is used; servers are then verified.
    """

    kind: str
    hosts: tuple[tuple[str, int], ...]
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    encrypted: bool = False

    def __str__(self) -> str:
        """Return the text of the address, which never contains secrets."""
        scheme = self.kind + "s" * self.encrypted
        hosts = ",".join(str(Endpoint(*host)) for host in self.hosts)
        if self.kind == "s3":
            scheme, hosts = "s3", self.hosts[0][0]
        options = "&".join(f"{name}={text}" for name, text in self.options.items())
        return f"{scheme}://{hosts}/{self.path}" + (f"?{options}" if options else "")

    @classmethod
    def parse(cls, text: str) -> StoreAddress:
        """Return an address from its text.

        Raises:
            RecordsError: the text contains a secret, or is no address of a store.
        """
        parts = urlsplit(text)
        scheme = parts.scheme.lower()
        if scheme not in PORTS:
            known = ", ".join(f"{name}://" for name in PORTS)
            raise RecordsError(f"{scheme}:// is not the scheme of a store; use {known}")
        user, at, places = parts.netloc.rpartition("@")
        if ":" in user:
            raise RecordsError(
                f"{scheme}://: do not put a password into an address; set "
                f"{PASSWORD_FILE} to a file that holds it"
            )
        kind = scheme.removesuffix("s") if scheme != "redis" else scheme
        if kind == "http" and parts.query:
            raise RecordsError(
                f"{scheme}://{places}: a signed address is a secret and expires; use "
                "s3:// with credentials"
            )
        options = _options_of(kind, parts.query)
        port = PORTS[scheme]
        hosts = tuple(_host_of(scheme, place, port) for place in places.split(","))
        path = unquote(parts.path.lstrip("/"))
        encrypted = scheme != kind
        return cls(kind, hosts, path, options, unquote(user) if at else "", encrypted)

    def with_index(self, name: str | None) -> StoreAddress:
        """Return the same address with the name of an index, or without one."""
        options = {key: text for key, text in self.options.items() if key != "index"}
        if name is not None:
            options["index"] = name
        return replace(self, options=options)

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return its servers, with the TLS context that verifies them.

        Raises:
            RecordsError: a certificate cannot be read.
        """
        tls = self.tls() if self.encrypted else None
        return tuple(Endpoint(host, port, tls) for host, port in self.hosts)

    def tls(self) -> ssl.SSLContext:
        """Return a TLS context that trusts the system's authorities or the given one.

        Raises:
            RecordsError: a certificate cannot be read.
        """
        options = self.options
        try:
            tls = ssl.create_default_context(cafile=options.get("ca"))
            if "cert" in options:
                tls.load_cert_chain(options["cert"], options.get("key"))
        except (OSError, ssl.SSLError) as error:
            names = ", ".join(
                options[name] for name in ("ca", "cert", "key") if name in options
            )
            raise RecordsError(f"{self}: {names}: {error}") from error
        return tls


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials for a store; `repr` omits the password."""

    user: str = ""
    password: str = field(default="", repr=False)


class Logins:
    """The credentials for a store, reread for each connection.

    Raises:
        RecordsError: the first read fails.
    """

    def __init__(self, address: StoreAddress, environ: Mapping[str, str]) -> None:
        self._address, self._environ = address, environ
        self._last = login_of(address, environ)

    def __repr__(self) -> str:
        return f"<Logins for {self._address}>"

    def current(self) -> Login:
        """Return the credentials; if they cannot be read now, the last ones."""
        with contextlib.suppress(RecordsError):
            self._last = login_of(self._address, self._environ)
        return self._last


def is_of_library(name: str) -> bool:
    """Return whether an address is that of a store read by a library."""
    return urlsplit(name).scheme.lower() not in PORTS


def is_pattern(path: str) -> bool:
    """Return whether a path in a store is a pattern of several objects."""
    return any(one in path for one in _MAGIC)


def fixed_part(pattern: str) -> str:
    """Return the prefix of all keys that a pattern matches."""
    places = [pattern.find(one) for one in _MAGIC if one in pattern]
    return pattern[: min(places)] if places else pattern


def login_of(address: StoreAddress, environ: Mapping[str, str] = os.environ) -> Login:
    """Return the user and the password for a store.

    They are read on demand, by the process that needs them.

    Raises:
        RecordsError: the password file cannot be read, or other users may read it.
    """
    user = address.user or environ.get(USER, "")
    name = address.options.get("password_file") or environ.get(PASSWORD_FILE)
    if name:
        return Login(user, _password_in(Path(name).expanduser()))
    return Login(user, environ.get(PASSWORD, ""))


def _password_in(file: Path) -> str:
    try:
        mode = file.stat().st_mode
        text = file.read_text()
    except (OSError, ValueError) as error:
        told = error.strerror if isinstance(error, OSError) else "it is not text"
        raise RecordsError(f"{file}, the file with the password: {told}") from error
    if stat.S_IMODE(mode) & (stat.S_IRWXG | stat.S_IRWXO):
        raise RecordsError(
            f"{file}, the file with the password, is readable by others; chmod 600 it"
        )
    return text.rstrip("\r\n")


def _options_of(kind: str, query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name.lower() in _SECRETS:
            raise RecordsError(
                f"{kind}://: do not put {name}= into an address; set "
                f"{PASSWORD_FILE} to a file that holds it"
            )
        if name not in _OPTIONS[kind]:
            known = ", ".join(sorted(_OPTIONS[kind]))
            raise RecordsError(f"{kind}://: unknown option {name}=; use one of {known}")
    return options


def _host_of(scheme: str, text: str, port: int) -> tuple[str, int]:
    """Return a host and its port; an IPv6 address is in brackets."""
    host, colon, digits = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, digits = text, str(port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not digits.isdecimal() or not 0 < int(digits) <= _PORT_MAX:
        raise RecordsError(f"{scheme}://: {text!r} is not HOST or HOST:PORT")
    return host, int(digits)
