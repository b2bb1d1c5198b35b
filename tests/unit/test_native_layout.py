"""The layouts read from C by Python are complete and agree with the header."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch import native
from monarch.stager import Destination

SOURCES = Path(__file__).parents[2] / "monarch" / "native"
HEADERS = [
    SOURCES / name
    for name in (
        "shared/layout.h",
        "shared/changes.h",
        "dataplane/api/api.h",
        "dataplane/demand/demand_api.h",
        "dataplane/base/lru.h",
        "dataplane/extents/order_api.h",
        "dataplane/extents/replica_state.h",
        "dataplane/extents/table_api.h",
        "dataplane/media/codec.h",
        "dataplane/media/pack_index.h",
        "dataplane/media/seal.h",
        "dataplane/peers/peers_api.h",
        "dataplane/peers/wire.h",
        "dataplane/transfers/transfers_api.h",
    )
]
ENUMS = {
    "method": native.Method,
    "scan_kind": native.ScanKind,
    "segment_kind": native.SegmentKind,
    "replica_state": native.ReplicaState,
    "reason": native.Reason,
    "source": native.Source,
    "cold_mode": native.ColdMode,
    "agent_state": native.AgentState,
    "catalog_state": native.CatalogState,
    "wait_source": native.WaitSource,
    "process_state": native.ProcessState,
    "monarch_kind": native.OrderKind,
    "monarch_step": native.Step,
    "monarch_verdict": native.Verdict,
    "monarch_destination": Destination,
}
# Values local to a process, or stored in files.
LOCAL = {"change_seen", "pack_list", "pack_tail", "state_watch", "range_name"}
UNITS = {"opens", "bytes", "calls", "marks"}


def source() -> str:
    """All headers without their comments."""
    text = "".join(path.read_text() for path in HEADERS)
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def declared_structs() -> dict[str, list[str]]:
    """Names of all structs of the headers, with the names of their fields."""
    found = {}
    for name, body in re.findall(r"^struct (\w+) \{(.*?)^\};", source(), re.M | re.S):
        fields = [
            re.sub(r"\[[^]]*\]|\*", "", word).split()[-1]
            for line in body.split(";")
            for word in line.split(",")
            if word.strip()
        ]
        if name not in LOCAL:
            found[name] = fields
    return found


def declared_enums() -> dict[str, list[str]]:
    """Names of all enums with a name, with their members."""
    found = {}
    for name, body in re.findall(r"^enum (\w+) \{(.*?)^\};", source(), re.M | re.S):
        if name != "counter":
            found[name] = [
                w.split("=")[0].strip() for w in body.split(",") if w.strip()
            ]
    return found


def test_every_struct_and_field_of_the_headers_is_described() -> None:
    declared = declared_structs()

    assert len(declared) >= 19
    assert {
        name: list(native.DTYPES[name].names or ()) for name in declared
    } == declared
    assert set(native.DTYPES) == set(declared)


@pytest.mark.parametrize("name", sorted(native.DTYPES))
def test_the_fields_of_a_struct_leave_no_gap(name: str) -> None:
    dtype = native.DTYPES[name]
    fields: Any = dtype.fields
    end = 0
    for field in dtype.names or ():
        item, offset = fields[field][:2]
        assert offset == end, field
        end += item.itemsize
    assert end == dtype.itemsize


def test_every_enum_of_the_headers_has_its_class() -> None:
    declared = declared_enums()

    assert set(declared) == set(ENUMS)
    for name, members in declared.items():
        own = list(ENUMS[name].__members__)
        assert [m for m, o in zip(members, own, strict=True) if not m.endswith(o)] == []
        assert len(set(ENUMS[name].__members__.values())) == len(members)
    # The enum that Python numbers itself, in the order of the header.
    assert list(Destination) == list(range(len(declared["monarch_destination"])))


def test_counters_are_in_the_order_of_their_numbers() -> None:
    text = (SOURCES / "shared" / "counter_names.def").read_text()

    names = re.findall(r"^COUNTER\((\w+),", text, re.M)

    assert [counter.name for counter in native.COUNTERS] == names
    assert native.DTYPES["process"]["counters"].shape == (len(names),)
    assert {counter.unit for counter in native.COUNTERS} == UNITS
    assert all(counter.text for counter in native.COUNTERS)


def test_constants_agree_with_the_header() -> None:
    for name, value in re.findall(r"^#define (\w+) (\d+)u$", source(), re.M):
        assert native.CONSTANTS[name] == int(value)
    for name, value in re.findall(r"^    ([A-Z_]+) = (\d+),$", source(), re.M):
        if name in native.CONSTANTS:
            assert native.CONSTANTS[name] == int(value)
    assert native.CONSTANTS["EXTENT_BYTES"] == 8 << 20


@given(
    st.sampled_from(native.ReplicaState),
    st.integers(0, native.CONSTANTS["TIERS_MAX"] - 1),
    st.sampled_from(native.Reason),
)
def test_a_state_word_can_be_taken_apart(
    state: native.ReplicaState, tier: int, reason: native.Reason
) -> None:
    word = native.state_word(state, tier, reason)

    ready = state is native.ReplicaState.READY
    assert native.word_parts(word) == (
        state,
        tier,
        native.Reason.NONE if ready else reason,
    )
    assert word == state | tier << 4 | reason << 8
    assert native.fixed_part(word | 0xFFFFF000) == word


@given(st.sampled_from(native.ReplicaState), st.sampled_from(native.Source))
def test_only_a_ready_file_has_a_source(
    state: native.ReplicaState, came_from: native.Source
) -> None:
    word = native.state_word(state, 1, source=came_from)

    ready = state is native.ReplicaState.READY
    assert native.word_source(word) is (came_from if ready else native.Source.NONE)


def test_wait_buckets_rise_by_halves_of_powers() -> None:
    starts = [native.wait_bucket_ns(i) for i in range(native.CONSTANTS["WAIT_BUCKETS"])]

    assert starts[:5] == [0, 1536, 2048, 3072, 4096]
    assert starts == sorted(set(starts))


def test_an_array_of_structs_can_be_written_through_its_dtype() -> None:
    root: Any = np.zeros(2, native.DTYPES["root"])

    root["file_base"][1] = 7

    assert root.tobytes()[root.itemsize :].find(b"\x07") == 24
