"""Wrong store settings: one early line that names the cause and no secret."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from monarch.records.stores.address import PASSWORD, PASSWORD_FILE, USER
from monarch.records.stores.fetching import CONNECT_S
from support.fake_s3 import KEY, SECRET, Act, FakeS3
from support.redis_servers import Redis, free_port, redis_server

pytest.importorskip("redis")
pytest.importorskip("botocore")
HUSH = "hush-hush-secret"
LIMIT_S = 12.0
"""Twice the round trip, 1 s, and the start of two Pythons on a busy machine."""


@dataclass(frozen=True)
class Wrong:
    """A wrong setting.

    Args:
        address: with the place of the server in braces.
        says: what the line has to name.
        environ: beside a right password.
        blocked: a library that cannot be imported.
        limit_s: where the server says nothing, which has to be waited for.
    """

    address: str
    says: str
    environ: Mapping[str, str] = field(default_factory=dict)
    blocked: str = ""
    limit_s: float = LIMIT_S


REDIS = "redis://{plain}/0?index=images"
CASES = {
    "password": Wrong(REDIS, "WRONGPASS", {PASSWORD: "not-" + HUSH}),
    "no password": Wrong(REDIS, "NOAUTH", {PASSWORD: ""}),
    "user": Wrong(REDIS, "WRONGPASS", {USER: "nobody"}),
    "password in the address": Wrong(f"redis://me:{HUSH}@{{plain}}/0", "do not put "),
    "password as an option": Wrong(
        f"redis://{{plain}}/0?password={HUSH}", "do not put "
    ),
    "password file that is not there": Wrong(
        REDIS, "No such file", {PASSWORD_FILE: "/nowhere/password"}
    ),
    "password file that others read": Wrong(
        REDIS, "chmod 600", {PASSWORD_FILE: "{open}"}
    ),
    "certificate": Wrong(
        "rediss://localhost:{tls}/0?index=images&ca={other}", "is not trusted"
    ),
    "name in the certificate": Wrong(
        "rediss://127.0.0.1:{tls}/0?index=images&ca={good}", "is not trusted"
    ),
    "authority that is not there": Wrong(
        "rediss://localhost:{tls}/0?ca=/nowhere/ca.pem", "/nowhere/ca.pem"
    ),
    "TLS where there is none": Wrong(
        "rediss://{plain}/0?index=images",
        "no answer after",
        limit_s=LIMIT_S + CONNECT_S,
    ),
    "no TLS where there is some": Wrong(
        "redis://localhost:{tls}/0?index=images", "localhost:"
    ),
    "host": Wrong("redis://no-such-host.invalid/0?index=images", "cannot be resolved"),
    "port": Wrong("redis://127.0.0.1:{free}/0?index=images", "refused"),
    "number of a port": Wrong("redis://127.0.0.1:99999/0", "is not HOST or HOST:PORT"),
    "database": Wrong("redis://{plain}/99?index=images", "DB index is out of range"),
    "name of a database": Wrong("redis://{plain}/images", "number of a database"),
    "index": Wrong("redis://{plain}/0?index=imagse", "monarch:index:imagse"),
    "option": Wrong("redis://{plain}/0?idnex=images", "unknown option idnex="),
    "scheme": Wrong("rdis://{plain}/0", "rdis://"),
    "library": Wrong("redis://{plain}/0", "monarch-staging[redis]", blocked="redis"),
    "bucket": Wrong("s3://bukcet/train/", "NoSuchBucket"),
    "key of a bucket": Wrong(
        "s3://bucket/train/", "InvalidAccessKeyId", {"AWS_ACCESS_KEY_ID": "AKOTHER"}
    ),
    "no credentials": Wrong(
        "s3://bucket/?index=x", "no credentials", {"AWS_ACCESS_KEY_ID": ""}
    ),
    "profile": Wrong("s3://bucket/?index=x&profile=nobody", "nobody"),
    "expired token": Wrong("s3://bucket/?index=expired", "ExpiredToken"),
    "clock": Wrong("s3://bucket/?index=late", "RequestTimeTooSkewed"),
    "endpoint": Wrong("s3://bucket/?index=x&endpoint=host:9000", "is no URL"),
    "library of buckets": Wrong(
        "s3://bucket/train/", "monarch-staging[s3]", blocked="botocore"
    ),
    "library of Cassandra": Wrong(
        "cassandra://{plain}/ks.t", "monarch-staging[cassandra]", blocked="cassandra"
    ),
    "table": Wrong("cassandra://{plain}/table?index=x", "KEYSPACE.TABLE"),
    "signed address": Wrong(
        f"https://host/a.tar?X-Amz-Signature={HUSH}", "a signed address is a secret"
    ),
}


def refused(serial: int, key: str) -> Act | None:
    """What the bucket answers for two of its objects."""
    codes = {"expired": "ExpiredToken", "late": "RequestTimeTooSkewed"}
    for name, code in codes.items():
        if key.endswith(name):
            return Act(403, code)
    return None


@pytest.fixture(scope="module")
def places(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, str]]:
    """Servers with a password, with and without TLS, a bucket, and files."""
    folder = tmp_path_factory.mktemp("settings")
    for name in ("good", "other"):
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes"),
                *("-keyout", str(folder / f"{name}.key"), "-days", "2"),
                *("-out", str(folder / f"{name}.pem"), "-subj", "/CN=localhost"),
                *("-addext", "subjectAltName=DNS:localhost"),
            ],
            check=True,
            capture_output=True,
        )
    readable = folder / "password"
    readable.write_text(HUSH)
    readable.chmod(0o644)
    tls = free_port()
    secure: tuple[str, ...] = ("--tls-port", str(tls), "--tls-auth-clients", "no")
    secure += ("--tls-cert-file", str(folder / "good.pem"))
    secure += ("--tls-key-file", str(folder / "good.key"))
    (folder / "secure").mkdir()
    encrypted = Redis(folder / "secure", HUSH, options=secure)
    with redis_server(folder / "plain", HUSH) as plain, FakeS3({}).served() as bucket:
        bucket.act = refused
        bucket.objects["train/x"] = b"x"
        encrypted.start()
        try:
            yield {
                "plain": f"127.0.0.1:{plain.port}",
                "tls": str(tls),
                "free": str(free_port()),
                "good": str(folder / "good.pem"),
                "other": str(folder / "other.pem"),
                "open": str(readable),
                "bucket": bucket.url,
            }
        finally:
            encrypted.end()


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_setting_is_reported_in_one_line_without_secrets(
    places: dict[str, str],
    tmp_path: Path,
    tool: Callable[[str], str],
    name: str,
) -> None:
    tool("redis-server")
    tool("openssl")
    wrong = CASES[name]
    if wrong.blocked:
        (tmp_path / f"{wrong.blocked}.py").write_text("raise ImportError('blocked')")
    settings = {
        PASSWORD: HUSH,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": places["bucket"],
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
        "PYTHONPATH": str(tmp_path),
        **{key: text.format_map(places) for key, text in wrong.environ.items()},
    }
    address = wrong.address.format_map(places)
    began_s = time.monotonic()

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, address],
        cwd=tmp_path,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert time.monotonic() - began_s < wrong.limit_s
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stdout == ""
    assert wrong.says in done.stderr
    assert HUSH not in done.stderr.replace(address, "")
    assert SECRET not in done.stderr


PROGRAM = (
    "import sys; sys.argv[:] = ['monarch', 'records', sys.argv[1]]; "
    "from monarch.cli import main; sys.exit(main())"
)
