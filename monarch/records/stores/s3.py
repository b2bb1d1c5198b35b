"""Access to buckets of S3 and compatible servers, and to objects of any HTTP server.

A bucket at AWS has its own host name; at other endpoints it is the first part of the
path ("Virtual hosting of general purpose buckets", Amazon S3 User Guide).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote, urlsplit

from monarch.records.errors import RecordsError
from monarch.records.stores.address import StoreAddress
from monarch.records.stores.connection import Endpoint, Talk
from monarch.records.stores.exchange import Failure, Fault
from monarch.records.stores.http import SAFE, Headers, HttpExchange, Signer, Tags
from monarch.records.stores.sigv4 import Credentials, Request, SigV4

CONNECTIONS_MAX: Final = 2048
REGION: Final = "us-east-1"
_KEY: Final = "AWS_ACCESS_KEY_ID"
_SECRET: Final = "AWS_SECRET_ACCESS_KEY"
_TOKEN: Final = "AWS_SESSION_TOKEN"
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_MISSING: Final = "needs the library botocore: pip install 'monarch-staging[s3]'"

Keys = Callable[[], Credentials | None]
"""Returns the current credentials; None: requests are anonymous."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """The location of a bucket.

    Attributes:
        url: URL of the endpoint; "": AWS in the region.
    """

    name: str
    region: str
    url: str = ""

    @classmethod
    def of(
        cls, address: StoreAddress, environ: Mapping[str, str] = os.environ
    ) -> Bucket:
        """Return the bucket of an address."""
        options = address.options
        regions = [environ.get(name, "") for name in _REGIONS]
        urls = [environ.get(name, "") for name in _ENDPOINTS]
        return cls(
            address.hosts[0][0],
            options.get("region") or next(filter(None, regions), REGION),
            options.get("endpoint") or next(filter(None, urls), ""),
        )

    def check(self) -> None:
        """Reject an endpoint that is no URL.

        Raises:
            RecordsError: the endpoint is no URL.
        """
        parts = urlsplit(self.url)
        if self.url and (parts.scheme not in ("http", "https") or not parts.hostname):
            text = f"endpoint={self.url} is no URL such as https://HOST:PORT"
            raise RecordsError(f"s3://{self.name}: {text}")

    def place(self) -> tuple[str, str, bool]:
        """Return the host and port, the prefix of paths, and whether TLS is used.

        Raises:
            RecordsError: the endpoint is no URL.
        """
        if not self.url:
            return f"{self.name}.s3.{self.region}.amazonaws.com", "/", True
        self.check()
        parts = urlsplit(self.url)
        base = parts.path.rstrip("/")
        return parts.netloc, f"{base}/{quote(self.name)}/", parts.scheme == "https"


class HttpWay:
    """Access by HTTP to a bucket or a file server.

    Keys are relative to the path of the address.

    Raises:
        RecordsError: the address cannot be used, or credentials are missing.
    """

    connections_max = CONNECTIONS_MAX
    has_copies = True
    checks = False

    def __init__(
        self,
        address: StoreAddress,
        details: Mapping[str, Any],
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.name = str(address)
        self._tags = Tags[details.get("tags", Tags.DIGEST.name)]
        self._sign: Signer | None = None
        if address.kind == "http":
            ((host, port),) = address.hosts
            self._host = str(Endpoint(host, port))
            base, encrypted = "/", address.encrypted
        else:
            bucket = Bucket.of(address, environ)
            self._host, base, encrypted = bucket.place()
            keys = keys_of(address, environ)
            self._sign = None if keys is None else signer(keys, bucket.region)
        self._prefix = base + quote(address.path, safe=SAFE)
        parts = urlsplit(f"//{self._host}")
        port = parts.port or (443 if encrypted else 80)
        tls = address.tls() if encrypted else None
        self._endpoints = (Endpoint(parts.hostname or "", port, tls),)

    def __repr__(self) -> str:
        return f"<HttpWay {self.name}>"

    def endpoints(self, key: bytes) -> Sequence[Endpoint]:
        """Return the server."""
        return self._endpoints

    def begin(self, endpoint: Endpoint) -> Talk:
        """Return a function that begins a conversation with the server."""
        return lambda _: HttpExchange(self._host, self._prefix, self._sign, self._tags)

    def moved(self, failure: Failure, *, is_away: bool) -> Endpoint | None:
        """Return None: a redirected request would need another region's signature."""
        return None

    def advice(self, fault: Fault) -> str:
        """Return advice to the user on a fault; "": none."""
        if fault is Fault.DENIED:
            return (
                f"check {_KEY} and {_SECRET}, or the profile, what they may read, and "
                "the clock of this machine"
            )
        if fault is Fault.CHANGED:
            return "list the bucket again: open_records(..., fresh=True)"
        if fault is Fault.MOVED:
            return "name the region of the bucket: ?region=REGION"
        if fault is Fault.FAILED:
            return "check the endpoint, and that the server runs"
        return ""


def signer(keys: Keys, region: str) -> Signer:
    """Return a function that signs requests with the current keys."""
    kept: list[SigV4] = []

    def sign(path: str, headers: Headers) -> Headers:
        found = keys()
        if found is None:
            return {}
        if not kept or kept[0].credentials != found:
            kept[:] = [SigV4(found, region)]
        return kept[0].headers(Request("GET", path, "", headers), datetime.now(UTC))

    return sign


def keys_of(address: StoreAddress, environ: Mapping[str, str]) -> Keys | None:
    """Return a function that returns the keys of a bucket; None: it needs no keys.

    Keys in the environment need no library. All others are found by botocore, and
    replaced before they expire: profiles, processes, web identities, instances.

    Raises:
        RecordsError: no keys are found.
    """
    if "anonymous" in address.options:
        return None
    profile = address.options.get("profile")
    key, secret = environ.get(_KEY), environ.get(_SECRET)
    if not profile and key and secret:
        found = Credentials(key, secret, environ.get(_TOKEN, ""))
        return lambda: found
    return _keys_by_library(address, profile)


def _keys_by_library(address: StoreAddress, profile: str | None) -> Keys:
    hint = f"set {_KEY} and {_SECRET}, or ?profile=NAME, or ?anonymous=1"
    try:
        import botocore.exceptions
        import botocore.session
    except ImportError as error:
        text = f"{address}: no credentials: {hint}; a profile {_MISSING}"
        raise RecordsError(text) from error
    try:
        found = botocore.session.Session(profile=profile).get_credentials()
    except botocore.exceptions.BotoCoreError as error:
        raise RecordsError(f"{address}: {error}; {hint}") from error
    if found is None:
        raise RecordsError(f"{address}: no credentials; {hint}")

    def keys() -> Credentials:
        now = found.get_frozen_credentials()
        return Credentials(now.access_key or "", now.secret_key or "", now.token or "")

    return keys
