"""Codecs of packed Tiers in the native engine: by File, and slow ones."""

from collections.abc import Callable

import numpy as np
import pytest

from monarch.codec import Codec
from monarch.native import Packing, codec_library
from support.processes import wait_until
from unit.test_native_packs import HEAD_BYTES, MIB, TIER, Node, Wanted, make, text

__all__ = ["make"]
SLOW = Codec.parse("lz4hc:12")

pytestmark = [
    pytest.mark.skipif(codec_library(SLOW) is None, reason="no liblz4"),
    pytest.mark.skipif(codec_library(Wanted().codec) is None, reason="no libzstd"),
]


def test_each_file_has_the_codec_of_its_rule(make: Callable[..., Node]) -> None:
    contents = [text(200_000, seed) for seed in range(6)]
    others = Packing(TIER, Codec(), rule=1), Packing(TIER, Codec.parse("lz4"), rule=2)
    node = make(contents, Wanted(others=others, rules=(0, 1, 2, 0, 1, 2)))

    node.fill(*range(6))
    node.bring(*range(6))

    assert [node.plain(file) for file in range(6)] == contents
    assert node.tally["raw_files"] == 2
    heads, methods = b"".join(path.read_bytes() for path in node.segments), []
    while heads:
        methods.append(heads[12])
        heads = heads[HEAD_BYTES + int.from_bytes(heads[8:12], "little") :]
    assert sorted(methods) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("rule", [1, 15, 16, 200])
def test_rule_that_no_packing_has_is_refused(
    make: Callable[..., Node], rule: int
) -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        make([b"text"], Wanted(rules=(rule,)))


def test_slow_codec_is_no_stall_of_the_origin(make: Callable[..., Node]) -> None:
    # A piece of two symbols takes seconds, too long for an origin.
    content = np.random.default_rng(1).integers(0, 2, MIB, np.uint8).tobytes()
    node = make([content], Wanted(SLOW))
    stalls: list[int] = []

    def done() -> bool:
        stalls.append(node.engine.health().stalled)
        return node.packed(0)

    node.engine.fill(np.zeros(1, np.uint32), np.zeros(0, np.uint32))
    wait_until(done, "the file is packed")

    assert not any(stalls)
