"""AWS Signature Version 4 of GET requests without a body.

Source: "Signature calculations for the Authorization header", Amazon S3 API Reference.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

UNSIGNED: Final = "UNSIGNED-PAYLOAD"
_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_END: Final = "aws4_request"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Keys for signing requests; `repr` omits the secret and the token.

    Attributes:
        token: session token of temporary credentials; "": none.
    """

    key: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


class Request(NamedTuple):
    """A request to sign.

    Attributes:
        path: quoted, as sent.
        query: quoted, in the order of its names.
        headers: headers that are sent, including Host.
        digest: digest of the body, in hexadecimal.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    digest: str = UNSIGNED


@dataclass(slots=True)
class SigV4:
    """Signs requests to one service of one region.

    The key of a day is derived only once, as that costs four digests.
    """

    credentials: Credentials
    region: str
    service: str = "s3"
    _day: str = ""
    _key: bytes = field(default=b"", repr=False)

    def headers(self, request: Request, now: datetime) -> dict[str, str]:
        """Return the headers that authorize a request at a time."""
        stamp = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
        added = {"x-amz-content-sha256": request.digest, "x-amz-date": stamp}
        if self.credentials.token:
            added["x-amz-security-token"] = self.credentials.token
        signed = {
            name.lower(): " ".join(value.split())
            for name, value in {**request.headers, **added}.items()
        }
        names = ";".join(sorted(signed))
        lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
        canonical = "\n".join(
            (*request[:3], lines, names, request.digest)  # lines end with a newline
        )
        scope = f"{stamp[:8]}/{self.region}/{self.service}/{_END}"
        hashed = hashlib.sha256(canonical.encode()).hexdigest()
        text = f"{_ALGORITHM}\n{stamp}\n{scope}\n{hashed}"
        signature = hmac.digest(self._key_of(stamp[:8]), text.encode(), "sha256").hex()
        added["Authorization"] = (
            f"{_ALGORITHM} Credential={self.credentials.key}/{scope}, "
            f"SignedHeaders={names}, Signature={signature}"
        )
        return added

    def _key_of(self, day: str) -> bytes:
        if day != self._day:
            key = f"AWS4{self.credentials.secret}".encode()
            for word in (day, self.region, self.service, _END):
                key = hmac.digest(key, word.encode(), "sha256")
            self._day, self._key = day, key
        return self._key
