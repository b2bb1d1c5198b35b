"""The schema of the configuration: every key with its type, default and meaning."""

import json
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from xxhash import xxh3_64_hexdigest

from monarch.codec import PLAIN
from monarch.config.types import (
    AnyPath,
    Bandwidth,
    Bytes,
    Capacity,
    Concurrency,
    DatasetPath,
    DurationRange,
    FileCodec,
    Headroom,
    Hosts,
    Interface,
    Patterns,
    Pool,
    ProgramName,
    Readers,
    ReportPath,
    Retain,
    Several,
    TierCodec,
    TierName,
    TierPath,
)
from monarch.units import Size, SizeKind

SCHEMA: Final = 1
# One less than in shared memory, where the transit pool takes a tier number, too.
TIERS_MAX: Final = 7
# One less than a packed Tier has codecs in the data plane.
CODEC_RULES_MAX: Final = 15
POOL_NAME: Final = "transit"


class Section(BaseModel):
    """A mapping of the configuration: immutable, without unknown keys."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", strict=True
    )


NEVER = (
    *("*.lock", "*-lock", "lock.mdb"),
    *("*.sqlite*", "*.db", "*.db-wal", "*.db-shm"),
)
"""Lock files, and databases whose readers write or lock."""


class Dataset(Section):
    """Files that are staged."""

    path: DatasetPath = Field(
        description="A directory, such as /pfs/imagenet, one file, a pattern of paths "
        "(/pfs/shards/train-*.tar), or @FILE: a file with one of the first two on "
        "each line. A dataset inside another is part of it, with patterns of its own."
    )
    aliases: Annotated[tuple[DatasetPath, ...], Several] = Field(
        default=(),
        max_length=16,
        description="Other paths of the same directory that programs use.",
    )
    include: Patterns = Field(
        default=("**",),
        description="Patterns, relative to path, of the files to stage.",
    )
    exclude: Patterns = Field(
        default=(),
        description="Patterns of files not to stage, although `include` matches.",
    )
    never: Patterns = Field(
        default=NEVER,
        description="Patterns of names that are never staged, in any directory.",
    )
    links: Literal["follow", "inside"] = Field(
        default="follow",
        description="follow: links that leave the directory are followed, and the "
        "files to which they lead are staged. inside: such links are left to the "
        "origin.",
    )
    index: AnyPath | None = Field(
        default=None,
        description="An index file of `monarch index`, loaded instead of a scan.",
    )


class CodecRule(Section):
    """How a packed tier packs files with some names."""

    files: Patterns = Field(
        min_length=1,
        description="Patterns, relative to a dataset, of these files: *.jpg.",
    )
    codec: FileCodec = Field(
        description="The codec of these files, as in codec, but not plain or auto."
    )


class Tier(Section):
    """A storage medium of the node that stores copies of files."""

    name: TierName = Field(description="The name in reports; it must be unique.")
    kind: Literal["ram", "ssd"] = Field(description="ram (a tmpfs) or ssd.")
    path: TierPath = Field(
        default="/dev/shm", description="The directory in which the tier is created."
    )
    capacity: Capacity = Field(
        default=Size(SizeKind.AUTO),
        description="The maximum size: a size (8GiB), a share (40%), all-but 10GiB, or "
        "auto. Shares are of the job's memory limit for ram and of the file system "
        "for ssd. auto is 25% of the memory limit, but at most half of the free "
        "memory, for ram, and 80% of the free space for ssd.",
    )
    headroom: Headroom = Field(
        default=Size(SizeKind.BYTES, 0),
        description="Space that always stays free: a size or a share.",
    )
    codec: TierCodec = Field(
        default=PLAIN,
        description="plain: each copy is a file. Others pack copies into few large "
        "files, from which they are decoded when a program opens or reads "
        "them: none stores them as they are, zstd:LEVEL, lz4 and lz4hc:LEVEL compress "
        "them; +shuffle2, +shuffle4 or +shuffle8 groups the bytes of numbers of that "
        "size before, +dict trains a dictionary that small files share. auto: the one "
        "that lets the tier hold most while reading takes no longer (`monarch codecs` "
        "tells which), or plain if none holds more. Decoded files are in "
        "peers.transit, a part of the ram tiers.",
    )
    codecs: Annotated[tuple[CodecRule, ...], Several] = Field(
        default=(),
        max_length=CODEC_RULES_MAX,
        description="Other codecs for files with some names; the first rule whose "
        "patterns match decides.",
    )
    eviction: Literal["none", "lru"] = Field(
        default="none",
        description="none: a copy stays until the job ends, and files that find no "
        "room are read from the origin. lru: the copies that were opened longest ago "
        "leave for a file that a program asks for. It gains where programs use some "
        "files often; each epoch reads each file once, so that of a larger dataset a "
        "copy leaves before it is read again. Background fill lets nothing leave.",
    )


class ColdOpen(Section):
    """Opens of files that are not staged yet."""

    mode: Literal["auto", "wait", "through"] = Field(
        default="auto",
        description="wait: the open waits for the copy. through: the program reads the "
        "origin while the file is copied. auto: wait for files up to wait_max, and "
        "serve reads of larger ones in blocks while they fill.",
    )
    wait_max: Bytes = Field(
        default=8 << 20,
        description="The size of the largest file for which auto waits as a whole.",
    )
    wait_max_whole: Bytes = Field(
        default=4 << 30,
        description="The same for files that are opened by fopen, mapped into memory "
        "or named by whole. Larger ones are read from the origin until fill has "
        "copied them.",
    )
    whole: Patterns = Field(
        default=(),
        description="Patterns, relative to a dataset, of files whose opens wait for "
        "all of the copy: for programs that map files, but not by mmap of libc.",
    )
    timeout: Annotated[float, DurationRange("100ms", "1h")] = Field(
        default=30.0,
        description="The longest wait of an open while no byte of the file is copied; "
        "after it the program reads the origin.",
    )


class Fill(Section):
    """Background fill: staging of files before a program opens them."""

    enabled: bool = Field(
        default=True, description="Stage files in the background: true or false."
    )
    concurrency: Concurrency = Field(
        default="auto",
        description="The number of files copied at the same time. auto: from 1 to 64, "
        "as many as the origin gains by, which is measured all the time.",
    )
    bandwidth: Bandwidth = Field(
        default=Size(SizeKind.UNLIMITED),
        description="The maximum rate of reads from the origin: 200MB/s or unlimited.",
    )

    @property
    def bytes_per_s(self) -> int | None:
        """Return the bandwidth, None if it is unlimited."""
        limited = self.bandwidth.kind is SizeKind.BYTES
        return int(self.bandwidth.amount) if limited else None

    @property
    def at_once(self) -> int | None:
        """Return how many files are copied at the same time, None if it is measured."""
        return None if self.concurrency == "auto" else self.concurrency


class Origin(Section):
    """How the origin is read."""

    max_readers: Readers = Field(
        default="unlimited",
        description="How many files all nodes of the job together read from the origin "
        "at the same time: a whole number, or unlimited. What a program waits for is "
        "read after 100 ms all the same. With peers.mode off, of each node.",
    )

    @property
    def readers(self) -> int | None:
        """Return the limit, None if unlimited."""
        return None if self.max_readers == "unlimited" else self.max_readers


class Catalog(Section):
    """The scan of the datasets before the program starts."""

    wait_max: Annotated[float, DurationRange("0s", "7d")] = Field(
        default=10.0,
        description="The longest wait for the scan; after it the program starts, and "
        "is served once the scan has ended.",
    )
    reuse: bool = Field(
        default=True,
        description="Keep the index of each scan in monarch-staging/indexes in "
        "XDG_STATE_HOME or ~/.local/state, and load it instead of a scan while no "
        "directory has changed: true or false.",
    )
    scan_threads: int = Field(
        default=16,
        ge=1,
        le=256,
        description="The number of directories read at the same time.",
    )


class Peers(Section):
    """The exchange of files between the nodes of a job."""

    mode: Literal["off", "partition", "replicate", "auto"] = Field(
        default="auto",
        description="partition: one copy of each file in the job. replicate: a copy on "
        "every node. auto: as many copies as fit. off: every node works alone.",
    )
    copies: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        default=None,
        description="The number of copies of each file that nodes keep as far as there "
        "is room, the first ones before all second ones: with 2 the origin is not read "
        "again when any one node is lost. null: as mode says.",
    )
    interface: Interface | None = Field(
        default=None,
        description="The network interface (ib0), or its address, for connections "
        "between agents. null: any.",
    )
    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=0,
        description="The port of an agent; if it is in use, one of the next seven. 0: "
        "any "
        "free port, which the agents publish in rendezvous.",
    )
    rendezvous: AnyPath | None = Field(
        default=None,
        description="A directory on a shared file system for the addresses of the "
        "nodes "
        "and the job's secret. null: monarch-staging in XDG_STATE_HOME or "
        "~/.local/state.",
    )
    secret_file: AnyPath | None = Field(
        default=None,
        description="A file of 32 random bytes, the same on every node, used instead "
        "of "
        "the secret in rendezvous.",
    )
    integrity: Literal["auto", "mac", "checksum"] = Field(
        default="auto",
        description="How files from other nodes are verified. mac: with a key of the "
        "job, against faults and attackers on the network. checksum: against faults "
        "only. auto: mac if every node has OpenSSL's libcrypto.",
    )
    timeout: Annotated[float, DurationRange("50ms", "60s")] = Field(
        default=1.0,
        description="The longest wait for the answer of a node; after it the next "
        "node, "
        "or the origin, is asked.",
    )
    join_timeout: Annotated[float, DurationRange("100ms", "1h")] = Field(
        default=10.0,
        description="The longest wait of the nodes for each other at the start; a node "
        "that starts later works alone until it has joined.",
    )
    transit: Pool = Field(
        default=Size(SizeKind.AUTO),
        description="The pool: memory for files that are fetched from other nodes and "
        "not kept, read ahead because of hints, or decoded from a packed tier. It is "
        "part of the ram tiers, which keep what is left: a size below theirs (64MiB), "
        "or auto, an eighth of them and at most 256MiB. Without ram tiers it is memory "
        "beside the tiers, and auto is 256MiB. In any case it is at most an eighth of "
        "the free memory.",
    )


class Agent(Section):
    """The agent: the process that stages files on each node."""

    linger: Annotated[float, DurationRange("0s", "1h")] = Field(
        default=10.0,
        description="How long the agent waits for processes that the job's programs "
        "have left running; one that was started by `monarch agent` also for the next "
        "program.",
    )


class Programs(Section):
    """Which programs of the job use staged files."""

    exclude: Annotated[tuple[ProgramName, ...], Several] = Field(
        default=(),
        max_length=32,
        description="Names of programs that always read the origin.",
    )


class Report(Section):
    """The report of where the job's bytes came from."""

    file: ReportPath | None = Field(
        default=None,
        description="The file of the report: JSON, or a page with its JSON beside it "
        "if the name ends in .html; %j is replaced by the job, %n by the node, %t by "
        "the time, %p by the agent's process. Its directory must exist, unless it has "
        "such a part itself.",
    )


class Metrics(Section):
    """What the agent exports to Prometheus while the job runs."""

    port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        default=None,
        description="The port of http://127.0.0.1:PORT/metrics, which every user of "
        "the node can read; 0: any free one, which `monarch status` tells. null: none.",
    )
    textfile: AnyPath | None = Field(
        default=None,
        description="A file that is replaced every 15 s and removed at the end, for "
        "the text-file collector of node_exporter: its name must end in .prom; %j is "
        "replaced by the job, %n by the node.",
    )


class Log(Section):
    """The log of the agent."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The lowest level that is logged."
    )


class Config(Section):
    """The configuration of a job."""

    schema_version: Literal[1] = Field(
        default=1, alias="schema", description="The version of the file format."
    )
    datasets: Annotated[tuple[Dataset, ...], Several] = Field(
        default=(), max_length=64, description="The directories whose files are staged."
    )
    tiers: Annotated[tuple[Tier, ...], Several] = Field(
        default=(Tier(name="ram", kind="ram"),),
        min_length=1,
        max_length=TIERS_MAX,
        description="The tiers of each node, fastest first.",
    )
    placement: Literal["push_down", "first_level_only"] = Field(
        default="push_down",
        description="push_down: a file goes to the fastest tier that has room, or to "
        "the next. first_level_only: the first tier alone is used.",
    )
    share: Literal["on", "off"] = Field(
        default="on",
        description="Whether files that another job of the user has staged on the "
        "node, in a tier on the same file system, are linked instead of read again. "
        "Files above cold_open.wait_max are linked by fill, or when a program reads "
        "them first, in jobs of one node without retain. Not shared: packed tiers, and "
        "ram tiers in jobs whose memory a cgroup limits. Files that other running jobs "
        "hold count as free space when a job starts, if these jobs have the same index "
        "of the dataset, and the files that they do not hold fit into the free space "
        "too: then linked files take no space, and the others cannot overfill the "
        "disk, unless one of these jobs evicts files (eviction: lru): the tier then "
        "shrinks to what it holds. Otherwise the capacity is limited by the free "
        "space alone.",
    )
    cold_open: ColdOpen = Field(default=ColdOpen())
    fill: Fill = Field(default=Fill())
    origin: Origin = Field(default=Origin())
    catalog: Catalog = Field(default=Catalog())
    hosts: Hosts = Field(
        default=(),
        description="The nodes of the job, if no scheduler names them, the same list "
        "on "
        "every node: names, name:port, or lists such as n[0-3].",
    )
    peers: Peers = Field(default=Peers())
    agent: Agent = Field(default=Agent())
    programs: Programs = Field(default=Programs())
    report: Report = Field(default=Report())
    retain: Retain = Field(
        default="job",
        description="How long copies are kept: job (until the job ends), node (until "
        "the space is needed), or a duration such as 7d. `monarch stage --evict` and "
        "`monarch clean --retained` remove them.",
    )
    metrics: Metrics = Field(default=Metrics())
    log: Log = Field(default=Log())

    @property
    def used_tiers(self) -> tuple[Tier, ...]:
        """Return the tiers that take files."""
        return self.tiers[:1] if self.placement == "first_level_only" else self.tiers


def to_json(config: Config) -> str:
    """Return the effective configuration as canonical JSON."""
    values = config.model_dump(mode="json", by_alias=True)
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def digest(config: Config) -> str:
    """Return 16 hex digits that differ when two configurations do."""
    return xxh3_64_hexdigest(to_json(config).encode())


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a configuration file."""
    schema = Config.model_json_schema(mode="serialization", by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
