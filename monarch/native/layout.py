"""The layouts of layout.h as numpy dtypes and enums, built from text that C returns."""

from enum import IntEnum, IntFlag
from typing import Any, NamedTuple

import numpy as np

from monarch.native.library import LIB


class CounterSpec(NamedTuple):
    """One counter of a process; its place in COUNTERS is its number."""

    name: str
    unit: str
    text: str


class _Text(NamedTuple):
    dtypes: dict[str, np.dtype[Any]]
    enums: dict[str, dict[str, int]]
    constants: dict[str, int]
    counters: tuple[CounterSpec, ...]


class _Struct:
    """The fields of one struct while its lines are read."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.names: list[str] = []
        self.offsets: list[int] = []
        self.formats: list[Any] = []

    def add(self, name: str, offset: int, size: int, kind: Any) -> None:
        item = np.dtype(kind)
        if item == np.dtype("S1") and size:
            item = np.dtype(f"S{size}")
        count = size // item.itemsize
        self.names.append(name)
        self.offsets.append(offset)
        self.formats.append(item if count == 1 else (item, (count,)))

    def dtype(self) -> np.dtype[Any]:
        fields: Any = {
            "names": self.names,
            "offsets": self.offsets,
            "formats": self.formats,
            "itemsize": self.size,
        }
        made: np.dtype[Any] = np.dtype(fields)
        return made


def _parse(text: str) -> _Text:
    structs: dict[str, _Struct] = {}
    found = _Text({}, {}, {}, ())
    counters = []
    for line in text.splitlines():
        word, name, *rest = line.split(" ", 3)
        if word == "struct":
            structs[name] = _Struct(int(rest[0]))
        elif word == "field":
            _add_field(structs, name, " ".join(rest).split(" "))
        elif word == "enum":
            found.enums.setdefault(name, {})[rest[0]] = int(rest[1])
        elif word == "constant":
            found.constants[name] = int(rest[0])
        else:
            counters.append(CounterSpec(name, rest[0], rest[1]))
    dtypes = {name: struct.dtype() for name, struct in structs.items()}
    return found._replace(dtypes=dtypes, counters=tuple(counters))


def _add_field(structs: dict[str, _Struct], owner: str, words: list[str]) -> None:
    name, offset, size, kind = words
    item: Any = {"p8": "<u8"}.get(kind)
    if item is None:
        item = structs[kind].dtype() if kind in structs else kind
    structs[owner].add(name, int(offset), int(size), item)


_TEXT = _parse(LIB.monarch_layout().decode())
_ENUMS = _TEXT.enums
DTYPES = _TEXT.dtypes
CONSTANTS = _TEXT.constants
COUNTERS = _TEXT.counters
_GENERATION_UNIT = CONSTANTS["STATE_FIXED"] + 1


class SegmentKind(IntEnum):
    """The kind of a segment."""

    CATALOG = _ENUMS["segment_kind"]["SEGMENT_CATALOG"]
    FLAGS = _ENUMS["segment_kind"]["SEGMENT_FLAGS"]
    REQUESTS = _ENUMS["segment_kind"]["SEGMENT_REQUESTS"]
    COUNTERS = _ENUMS["segment_kind"]["SEGMENT_COUNTERS"]
    INODES = _ENUMS["segment_kind"]["SEGMENT_INODES"]
    INDEX = _ENUMS["segment_kind"]["SEGMENT_INDEX"]


class Method(IntEnum):
    """How a codec compresses."""

    NONE = _ENUMS["method"]["METHOD_NONE"]
    LZ4 = _ENUMS["method"]["METHOD_LZ4"]
    ZSTD = _ENUMS["method"]["METHOD_ZSTD"]


class ReplicaState(IntEnum):
    """The low byte of a File's state word."""

    ABSENT = _ENUMS["replica_state"]["REPLICA_ABSENT"]
    STAGING = _ENUMS["replica_state"]["REPLICA_STAGING"]
    READY = _ENUMS["replica_state"]["REPLICA_READY"]
    EVICTING = _ENUMS["replica_state"]["REPLICA_EVICTING"]


class Reason(IntEnum):
    """Why an absent File must not be requested."""

    NONE = _ENUMS["reason"]["REASON_NONE"]
    NO_ROOM = _ENUMS["reason"]["REASON_NO_ROOM"]
    CHANGED = _ENUMS["reason"]["REASON_CHANGED"]
    ERROR = _ENUMS["reason"]["REASON_ERROR"]
    MEMORY = _ENUMS["reason"]["REASON_MEMORY"]
    STOPPING = _ENUMS["reason"]["REASON_STOPPING"]
    BUSY = _ENUMS["reason"]["REASON_BUSY"]
    DENIED = _ENUMS["reason"]["REASON_DENIED"]


class Source(IntEnum):
    """The source of the bytes of a ready File."""

    NONE = _ENUMS["source"]["SOURCE_NONE"]
    PEER = _ENUMS["source"]["SOURCE_PEER"]
    PACK = _ENUMS["source"]["SOURCE_PACK"]
    SIBLING = _ENUMS["source"]["SOURCE_SIBLING"]


class ColdMode(IntEnum):
    """The behaviour of an open without a Replica."""

    AUTO = _ENUMS["cold_mode"]["COLD_AUTO"]
    WAIT = _ENUMS["cold_mode"]["COLD_WAIT"]
    THROUGH = _ENUMS["cold_mode"]["COLD_THROUGH"]


class AgentState(IntEnum):
    """The state of the agent, which launchers wait for."""

    STARTING = _ENUMS["agent_state"]["AGENT_STARTING"]
    READY = _ENUMS["agent_state"]["AGENT_READY"]
    PLAIN = _ENUMS["agent_state"]["AGENT_PLAIN"]
    ENDING = _ENUMS["agent_state"]["AGENT_ENDING"]
    SCANNING = _ENUMS["agent_state"]["AGENT_SCANNING"]


class CatalogState(IntEnum):
    """Whether programs that started before the Catalog was ready can use it."""

    NONE = _ENUMS["catalog_state"]["CATALOG_NONE"]
    SETTLING = _ENUMS["catalog_state"]["CATALOG_SETTLING"]
    SERVED = _ENUMS["catalog_state"]["CATALOG_SERVED"]


class WaitSource(IntEnum):
    """The kind of transfer that a program has waited for."""

    ORIGIN = _ENUMS["wait_source"]["WAIT_ORIGIN"]
    PEER = _ENUMS["wait_source"]["WAIT_PEER"]
    BLOCKS = _ENUMS["wait_source"]["WAIT_BLOCKS"]


class ProcessState(IntEnum):
    """The state of a process slot."""

    FREE = _ENUMS["process_state"]["PROCESS_FREE"]
    CLAIMED = _ENUMS["process_state"]["PROCESS_CLAIMED"]
    LAUNCHED = _ENUMS["process_state"]["PROCESS_LAUNCHED"]
    ACTIVE = _ENUMS["process_state"]["PROCESS_ACTIVE"]
    LAUNCHER = _ENUMS["process_state"]["PROCESS_LAUNCHER"]


class OrderKind(IntFlag):
    """The bits of the kind of an order."""

    DEMAND = _ENUMS["monarch_kind"]["MONARCH_DEMAND"]
    BACKGROUND = _ENUMS["monarch_kind"]["MONARCH_BACKGROUND"]
    ADOPT = _ENUMS["monarch_kind"]["MONARCH_ADOPT"]
    ADOPT_BACKGROUND = _ENUMS["monarch_kind"]["MONARCH_ADOPT_BACKGROUND"]
    ASKED = _ENUMS["monarch_kind"]["MONARCH_ASKED"]
    REPORT = _ENUMS["monarch_kind"]["MONARCH_REPORT"]
    HINT = _ENUMS["monarch_kind"]["MONARCH_HINT"]
    PARTLY = _ENUMS["monarch_kind"]["MONARCH_PARTLY"]
    AWAITED = _ENUMS["monarch_kind"]["MONARCH_AWAITED"]
    LOCAL = _ENUMS["monarch_kind"]["MONARCH_LOCAL"]


class Verdict(IntEnum):
    """The decision on a requested File."""

    BEGUN = _ENUMS["monarch_verdict"]["VERDICT_BEGUN"]
    NOTHING = _ENUMS["monarch_verdict"]["VERDICT_NOTHING"]
    READY = _ENUMS["monarch_verdict"]["VERDICT_READY"]
    POOL = _ENUMS["monarch_verdict"]["VERDICT_POOL"]
    PASSED = _ENUMS["monarch_verdict"]["VERDICT_PASSED"]
    WRITTEN = _ENUMS["monarch_verdict"]["VERDICT_WRITTEN"]
    WHOLE = _ENUMS["monarch_verdict"]["VERDICT_WHOLE"]
    EVICT = _ENUMS["monarch_verdict"]["VERDICT_EVICT"]


class Step(IntEnum):
    """The step in which a Transfer ended."""

    ORDER = _ENUMS["monarch_step"]["MONARCH_STEP_ORDER"]
    OPEN = _ENUMS["monarch_step"]["MONARCH_STEP_OPEN"]
    STAT = _ENUMS["monarch_step"]["MONARCH_STEP_STAT"]
    READ = _ENUMS["monarch_step"]["MONARCH_STEP_READ"]
    CREATE = _ENUMS["monarch_step"]["MONARCH_STEP_CREATE"]
    WRITE = _ENUMS["monarch_step"]["MONARCH_STEP_WRITE"]
    VERIFY = _ENUMS["monarch_step"]["MONARCH_STEP_VERIFY"]
    PUBLISH = _ENUMS["monarch_step"]["MONARCH_STEP_PUBLISH"]


class ScanKind(IntEnum):
    """The classification of a name by a scan."""

    FILE = _ENUMS["scan_kind"]["SCAN_FILE"]
    DIRECTORY = _ENUMS["scan_kind"]["SCAN_DIRECTORY"]
    LINK = _ENUMS["scan_kind"]["SCAN_LINK"]
    SPECIAL = _ENUMS["scan_kind"]["SCAN_SPECIAL"]
    MOUNT = _ENUMS["scan_kind"]["SCAN_MOUNT"]
    ABSURD = _ENUMS["scan_kind"]["SCAN_ABSURD"]
    GONE = _ENUMS["scan_kind"]["SCAN_GONE"]
    UNREADABLE = _ENUMS["scan_kind"]["SCAN_UNREADABLE"]
    FAILED = _ENUMS["scan_kind"]["SCAN_FAILED"]


def state_word(
    state: ReplicaState,
    tier: int = 0,
    reason: Reason = Reason.NONE,
    source: Source = Source.NONE,
) -> int:
    """Return the state word of a File, see STATE_WORD of layout.h.

    Args:
        reason: why an absent File must not be requested.
        source: where a ready File was read from.
    """
    units = CONSTANTS["STATE_TIER_UNIT"], CONSTANTS["STATE_REASON_UNIT"]
    return int(state) + tier * units[0] + (int(reason) or int(source)) * units[1]


def fixed_part(word: int) -> int:
    """Return a state word without its generation and confirmation."""
    return int(word) & CONSTANTS["STATE_FIXED"]


def generation(word: int) -> int:
    """Return the generation of a state word: one more with each Transfer."""
    return (int(word) & CONSTANTS["STATE_GENERATION"]) // _GENERATION_UNIT


def following_generation(number: int) -> int:
    """Return the next generation."""
    return (number + 1) % (CONSTANTS["STATE_GENERATION"] // _GENERATION_UNIT + 1)


def word_parts(word: int) -> tuple[ReplicaState, int, Reason]:
    """Return state, Tier and reason of a state word; READY has no reason."""
    word = fixed_part(word)
    tier_unit, reason_unit = (
        CONSTANTS["STATE_TIER_UNIT"],
        CONSTANTS["STATE_REASON_UNIT"],
    )
    state = ReplicaState(word % tier_unit)
    ready = state is ReplicaState.READY
    return (
        state,
        word % reason_unit // tier_unit,
        Reason.NONE if ready else Reason(word // reason_unit),
    )


def word_source(word: int) -> Source:
    """Return the Source of the bytes of a READY File."""
    word = fixed_part(word)
    if word % CONSTANTS["STATE_TIER_UNIT"] != ReplicaState.READY:
        return Source.NONE
    return Source(word // CONSTANTS["STATE_REASON_UNIT"])


def wait_bucket_ns(bucket: int) -> int:
    """Return the shortest wait in a bucket of the histogram, in ns."""
    return int(LIB.monarch_wait_bucket_ns(bucket))
