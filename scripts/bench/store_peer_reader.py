"""One run of a loader or client over a store, with what it needs; prints a JSON line.

    store_peer_reader.py JSON
    store_peer_reader.py make-mds JSON

Each gives batches of whole records, over and over, as fast as it can. It is timed from
its first batch on, imports and connections before it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from itertools import count, islice
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
VALUES = 256
BUCKET = "files"
Batches = Iterator[list[Any]]


def numbers(given: dict[str, Any]) -> Iterator[list[int]]:
    """Give the numbers of the records of each batch, without end."""
    for first in count(0, given["batch"]):
        yield [(first + k) % VALUES for k in range(given["batch"])]


def monarch_over(kind: str) -> Callable[[dict[str, Any]], Batches]:
    """Return what reads by Monarch's own loader, one epoch after the other."""

    def batches(given: dict[str, Any]) -> Batches:
        import stores_reader

        records = stores_reader.records_of({**given, "store": kind, "keys": "v%d"})
        loader_of = import_module("monarch.loader").Loader
        size, window = given["batch"], given["window"]
        with loader_of(records, size, window=window, in_order=False) as loader:
            while True:
                for batch in loader:
                    yield batch.records

    return batches


# -- Redis -----------------------------------------------------------------------------


def redis_rows(client: Any, wanted: list[int]) -> list[Any]:
    """Return one batch, asked for by one pipeline."""
    pipeline = client.pipeline(transaction=False)
    for number in wanted:
        pipeline.get(f"v{number}")
    rows: list[Any] = pipeline.execute()
    return rows


def redis_loop(given: dict[str, Any]) -> Batches:
    """redis-py with hiredis: a pipeline for each batch, one after the other."""
    client = import_module("redis").Redis(HOST, given["port"])
    for wanted in numbers(given):
        yield redis_rows(client, wanted)


def redis_threads(given: dict[str, Any]) -> Batches:
    """The same, with as many pipelines at once as the window has batches."""
    client = import_module("redis").Redis(HOST, given["port"])
    threads = given["window"] // given["batch"]
    yield from ahead(partial(redis_rows, client), numbers(given), threads, threads)


def ahead(
    fetch: Callable[[Any], Any], wanted: Iterator[Any], threads: int, most: int
) -> Iterator[Any]:
    """Give what is fetched, in order, with so much asked for ahead."""
    with ThreadPoolExecutor(threads) as pool:
        asked = [pool.submit(fetch, one) for one in islice(wanted, most)]
        while True:
            yield asked.pop(0).result()
            asked.append(pool.submit(fetch, next(wanted)))


# -- a bucket --------------------------------------------------------------------------


def endpoint(given: dict[str, Any]) -> str:
    """Return the address of the bucket's server."""
    return f"http://{HOST}:{given['port']}"


def boto3_threads(given: dict[str, Any]) -> Batches:
    """boto3: a GET a record, by many threads."""
    config = import_module("botocore.config").Config(
        signature_version=import_module("botocore").UNSIGNED,
        s3={"addressing_style": "path"},
        max_pool_connections=given["threads"],
    )
    client = import_module("boto3").client(
        "s3", endpoint_url=endpoint(given), region_name="us-east-1", config=config
    )

    def get(number: int) -> bytes:
        answer = client.get_object(Bucket=BUCKET, Key=f"v{number}")
        found: bytes = answer["Body"].read()
        return found

    size = given["batch"]
    every = (number for batch in numbers(given) for number in batch)
    got = ahead(get, every, given["threads"], 2 * given["threads"])
    while True:
        yield list(islice(got, size))


def whole(reader: Any) -> bytes:
    """Return what an object has."""
    found: bytes = reader.read()
    return found


def s3torchconnector_workers(given: dict[str, Any]) -> Batches:
    """s3torchconnector in a DataLoader, with many workers."""
    module = import_module("s3torchconnector")
    torch = import_module("torch.utils.data")
    rows = module.S3MapDataset.from_objects(
        [f"s3://{BUCKET}/v{n % VALUES}" for n in range(given["records"])],
        region="us-east-1",
        endpoint=endpoint(given),
        transform=whole,
        s3client_config=module.S3ClientConfig(force_path_style=True, unsigned=True),
    )
    size, workers = given["batch"], given["workers"]
    loader = torch.DataLoader(
        *(rows, size),
        num_workers=workers,
        collate_fn=list,
        persistent_workers=True,
    )
    while True:
        yield from loader


def streaming_rows(batch: list[dict[str, Any]]) -> list[Any]:
    """Return the records of a batch."""
    return [row["record"] for row in batch]


def streaming_shards(given: dict[str, Any]) -> Batches:
    """mosaicml-streaming: shards are copied to this disk, by each of some workers."""
    module = import_module("streaming")
    module.base.util.clean_stale_shared_memory()
    os.environ["S3_ENDPOINT_URL"] = endpoint(given)
    os.environ.update(AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any")
    rows = module.StreamingDataset(
        remote=f"s3://{BUCKET}/mds",
        local=str(Path(given["folder"]) / f"mds-{given['rtt_ms']}"),
        shuffle=True,
        batch_size=given["batch"],
    )
    yield from module.StreamingDataLoader(
        *(rows, given["batch"]),
        num_workers=given["workers"],
        collate_fn=streaming_rows,
    )


def make_mds(given: dict[str, Any]) -> None:
    """Convert records for mosaicml-streaming, into shards of its usual size."""
    module = import_module("streaming")
    columns = {"record": "bytes"}
    with module.MDSWriter(out=given["folder"], columns=columns) as writer:
        for _ in range(given["records"]):
            writer.write({"record": os.urandom(given["bytes"])})


def tensorflow_reads(given: dict[str, Any]) -> Batches:
    """tf.data with tensorflow-io's S3: many files read at once, then batches."""
    os.environ["S3_ENDPOINT"] = endpoint(given)
    os.environ.update(S3_USE_HTTPS="0", S3_VERIFY_SSL="0", AWS_REGION="us-east-1")
    tf = import_module("tensorflow")
    import_module("tensorflow_io")
    rows = tf.data.Dataset.range(1 << 40).map(
        lambda n: tf.io.read_file(
            tf.strings.format(f"s3://{BUCKET}/v{{}}", n % VALUES)
        ),
        num_parallel_calls=given["threads"],
        deterministic=False,
    )
    for batch in rows.batch(given["batch"]).as_numpy_iterator():
        yield list(batch)


READERS: dict[str, Callable[[dict[str, Any]], Batches]] = {
    "monarch-redis": monarch_over("redis"),
    "monarch-http": monarch_over("http"),
    "redis-loop": redis_loop,
    "redis-threads": redis_threads,
    "boto3": boto3_threads,
    "s3torchconnector": s3torchconnector_workers,
    "streaming": streaming_shards,
    "tf.data": tensorflow_reads,
}


def read(given: dict[str, Any]) -> dict[str, float]:
    """Read until enough was seen, or for so long."""
    began_s = time.monotonic()
    batches = READERS[given["reader"]](given)
    got = len(next(batches))
    first_s = time.monotonic() - began_s
    for batch in batches:
        assert all(len(record) == given["bytes"] for record in batch)
        got += len(batch)
        took_s = time.monotonic() - began_s - first_s
        if got >= given["most"] or took_s > given["limit_s"]:
            break
    took_s = time.monotonic() - began_s - first_s
    return {"rate": (got - given["batch"]) / took_s, "first_s": first_s}


if __name__ == "__main__":
    if sys.argv[1] == "make-mds":
        make_mds(json.loads(sys.argv[2]))
    else:
        print(json.dumps(read(json.loads(sys.argv[1]))), flush=True)
        # Workers, and libraries that do not end well, are not waited for.
        os._exit(0)
