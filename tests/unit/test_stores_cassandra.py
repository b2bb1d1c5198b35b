"""Queries of a Cassandra cluster: tokens, tables, and the nodes that have a key."""

import random
import uuid

import pytest

from monarch.records.errors import RecordsError
from monarch.records.stores.address import StoreAddress
from monarch.records.stores.cassandra import CqlWay, Table, token_of

# From `SELECT token(id)` of Cassandra 5.0.6 and by the library cassandra-driver.
TOKENS = {
    b"": 0,
    b"a" * 16: -954455200256842034,
    b"\xff\x80abc": 5767299656504056697,
}


@pytest.mark.parametrize("key", TOKENS, ids=repr)
def test_tokens_are_those_of_cassandra(key: bytes) -> None:
    assert token_of(key) == TOKENS[key]


def test_tokens_are_those_of_the_library() -> None:
    metadata = pytest.importorskip("cassandra.metadata")
    chance = random.Random(7)
    for size in range(80):
        key = chance.randbytes(size)
        assert token_of(key) == metadata.Murmur3Token.hash_fn(key)


def test_a_table_is_named_with_its_columns_and_nothing_else() -> None:
    def statement(text: str) -> str:
        return Table(StoreAddress.parse(text)).statement

    assert (
        statement("cassandra://h/ks.data")
        == 'SELECT "data" FROM "ks"."data" WHERE "id" = ?'
    )
    assert (
        statement("cassandra://h/ks.images?id=patch_id&data=jpeg")
        == 'SELECT "jpeg" FROM "ks"."images" WHERE "patch_id" = ?'
    )
    for wrong in ("ks", "ks.", ".t", "ks.a.b", 'ks.a"', "ks.a;drop", "1ks.t"):
        with pytest.raises(RecordsError, match=r"is not KEYSPACE\.TABLE"):
            statement(f"cassandra://h/{wrong}")
    with pytest.raises(RecordsError, match="is not a column name"):
        statement('cassandra://h/ks.t?id=a"b')


def test_the_replicas_of_a_key_are_queried_first() -> None:
    ring: list[tuple[str, list[str]]] = [
        (str(-(1 << 61)), ["h1", "h2"]),
        ("0", ["h2", "h3"]),
        (str(1 << 61), ["h3", "h1"]),
    ]
    way = CqlWay(StoreAddress.parse("cassandra://h1,h2/ks.t"), {"ring": ring}, {})
    chance = random.Random(8)

    for _ in range(300):
        key = uuid.UUID(int=chance.getrandbits(128)).bytes
        token = token_of(key)
        owners = next((hosts for end, hosts in ring if token <= int(end)), ring[0][1])
        found = [endpoint.host for endpoint in way.endpoints(key)]
        assert found[:2] == owners
        assert {"h1", "h2"} <= set(found)
        assert len(found) == len(set(found))


def test_without_a_ring_any_node_is_asked() -> None:
    way = CqlWay(StoreAddress.parse("cassandra://h1,h2:9999/ks.t"), {}, {})

    assert [*map(str, way.endpoints(b"x"))] == ["h1:9042", "h2:9999"]
