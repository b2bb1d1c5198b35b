"""A codec that takes long is no sign of an origin that does not answer."""

from collections.abc import Callable

import numpy as np
import pytest

from monarch.codec import Codec
from monarch.native import codec_library
from support.processes import wait_until
from unit.test_native_packs import MIB, Node, Wanted, make

__all__ = ["make"]
SLOW = Codec.parse("lz4hc:12")

pytestmark = pytest.mark.skipif(codec_library(SLOW) is None, reason="no liblz4")


def test_slow_codec_is_no_stall_of_the_origin(make: Callable[..., Node]) -> None:
    # A piece of two symbols takes seconds, which an origin may not.
    content = np.random.default_rng(1).integers(0, 2, MIB, np.uint8).tobytes()
    node = make([content], Wanted(SLOW))
    stalls: list[int] = []

    def done() -> bool:
        stalls.append(node.engine.health().stalled)
        return node.packed(0)

    node.engine.fill(np.zeros(1, np.uint32), np.zeros(0, np.uint32))
    wait_until(done, "the file is packed")

    assert not any(stalls)
