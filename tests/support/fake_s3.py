"""A bucket scripted by a test: lists, ETags, ranges, 503, resets and halves."""

import hashlib
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

PAGE = 1000
UNSET = ("AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_SESSION_TOKEN")
_KEY_ID = re.compile("Credential=([^/]+)/")
KEY, SECRET = "AKTEST", "hush-hush-secret"


@dataclass(frozen=True, slots=True)
class Act:
    """The bucket's action instead of a good reply.

    Args:
        status: of an error, with this code in its body.
        resets: it closes the connection after so many bytes of the body.
        late_s: it replies so much later.
    """

    status: int = 0
    code: str = ""
    resets: int = -1
    late_s: float = 0.0


@dataclass(slots=True)
class FakeS3:
    """A server with one bucket, `bucket`, by the path style.

    Args:
        act: says what becomes of the GET of an object, by its serial number and key.
        keys: by which requests were signed.
        plain_tags: ETags are MD5 digits; else they are like those of large objects.
    """

    objects: dict[str, bytes]
    act: Callable[[int, str], Act | None] = lambda serial, key: None
    plain_tags: bool = True
    port: int = 0
    gets: list[str] = field(default_factory=list)
    lists: int = 0
    connections: int = 0
    keys: set[str] = field(default_factory=set)
    lock: Any = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://127.0.0.1:{self.port}"

    def use(self, patch: pytest.MonkeyPatch) -> None:
        """Makes this the server of all buckets, with keys and no other settings."""
        for name in UNSET:
            patch.delenv(name, raising=False)
        patch.setenv("AWS_ENDPOINT_URL", self.url)
        patch.setenv("AWS_ACCESS_KEY_ID", KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_CONFIG_FILE", "/dev/null")
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")

    def tag(self, key: str) -> str:
        """The ETag of an object."""
        digits = hashlib.md5(self.objects[key]).hexdigest()
        return f'"{digits}"' if self.plain_tags else f'"{digits}-2"'

    @contextmanager
    def served(self) -> Iterator["FakeS3"]:
        """Serves until the block ends; its clients lose their connections then."""
        handler = type("Talk", (_BucketTalk,), {"bucket": self})
        server = _Server(("127.0.0.1", self.port), handler)
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=[0.05])
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            server.hang_up()
            thread.join(10)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1024

    def __init__(self, *words: Any) -> None:
        self._talking: set[socket.socket] = set()
        super().__init__(*words)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._talking.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._talking.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End all connections, as a process that is killed does."""
        for request in list(self._talking):
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients of tests go away at any time."""


class _BucketTalk(BaseHTTPRequestHandler):
    bucket: FakeS3
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        with self.bucket.lock:
            self.bucket.connections += 1

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.bucket.keys |= set(_KEY_ID.findall(self.headers.get("Authorization", "")))
        name, _, key = unquote(parts.path).lstrip("/").partition("/")
        if KEY not in self.headers.get("Authorization", KEY):
            self._refuse(403, "InvalidAccessKeyId")
        elif name != "bucket":
            self._refuse(404, "NoSuchBucket")
        elif not key:
            self._list({name: row[0] for name, row in parse_qs(parts.query).items()})
        else:
            self._get(key)

    def do_HEAD(self) -> None:
        key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]
        content = self.bucket.objects.get(key)
        if content is None:
            self._send_head(404, 0, {})
        else:
            self._send_head(200, len(content), {"ETag": self.bucket.tag(key)})

    def do_PUT(self) -> None:
        key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]
        size = int(self.headers["Content-Length"])
        self.bucket.objects[key] = self.rfile.read(size)
        self._reply(200, b"", {"ETag": self.bucket.tag(key)})

    def do_DELETE(self) -> None:
        key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]
        self.bucket.objects.pop(key, None)
        self.send_response(204)
        self.end_headers()

    def _get(self, key: str) -> None:
        bucket = self.bucket
        with bucket.lock:
            serial = len(bucket.gets)
            bucket.gets.append(key)
        act = bucket.act(serial, key) or Act()
        time.sleep(act.late_s)
        if act.status:
            self._refuse(act.status, act.code)
            return
        if key not in bucket.objects:
            self._refuse(404, "NoSuchKey")
            return
        content, tag = bucket.objects[key], bucket.tag(key)
        if self.headers.get("If-Match", tag) != tag:
            self._refuse(412, "PreconditionFailed")
            return
        status, headers = 200, {"ETag": tag}
        if given := self.headers.get("Range"):
            first, last = map(int, given.removeprefix("bytes=").split("-"))
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            status, content = 206, content[first : last + 1]
        if act.resets < 0:
            self._reply(status, content, headers)
            return
        self._send_head(status, len(content), headers)
        self.wfile.write(content[: act.resets])
        self.close_connection = True

    def _list(self, query: dict[str, str]) -> None:
        with self.bucket.lock:
            self.bucket.lists += 1
        prefix, mark = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token", "")
        names = [key for key in sorted(self.bucket.objects) if key.startswith(prefix)]
        rests = {key: key.removeprefix(prefix) for key in names if key > after}
        rows = [key for key, rest in rests.items() if not mark or mark not in rest]
        deeper = [rest for rest in rests.values() if mark and mark in rest]
        below = {prefix + rest.partition(mark)[0] + mark for rest in deeper}
        page = rows[:PAGE]
        body = "".join(
            f"<Contents><Key>{escape(key)}</Key><ETag>{escape(self.bucket.tag(key))}"
            f"</ETag><Size>{len(self.bucket.objects[key])}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in page
        )
        body += "".join(
            f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>"
            for one in sorted(below)
        )
        more = len(rows) > PAGE
        body += f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        if more:
            token = escape(page[-1])
            body += f"<NextContinuationToken>{token}</NextContinuationToken>"
        text = f"<ListBucketResult>{body}</ListBucketResult>"
        self._reply(200, text.encode(), {"Content-Type": "application/xml"})

    def _refuse(self, status: int, code: str) -> None:
        self._reply(status, f"<Error><Code>{code}</Code></Error>".encode(), {})

    def _reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self._send_head(status, len(body), headers)
        self.wfile.write(body)

    def _send_head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
