"""The one schema of the configuration: every key, its type and its default."""

from typing import Annotated, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from monarch.config.types import (
    AnyPath,
    Bandwidth,
    Bytes,
    Capacity,
    DatasetPath,
    Headroom,
    Hosts,
    Interface,
    Patterns,
    ProgramName,
    Retain,
    Several,
    TierName,
    TierPath,
    Within,
)
from monarch.units import Size, SizeKind

SCHEMA: Final = 1
# One less than shared memory has room for: the pool of peers is one too.
TIERS_MAX: Final = 7
POOL_NAME: Final = "transit"


class Section(BaseModel):
    """A mapping of the configuration: immutable, and refusing unknown keys."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", strict=True
    )


NEVER = (
    *("*.lock", "*-lock", "lock.mdb"),
    *("*.sqlite*", "*.db", "*.db-wal", "*.db-shm"),
)
"""Locks, and databases whose readers take part in what writers do."""


class Dataset(Section):
    """A directory whose files are staged."""

    path: DatasetPath = Field(description="The directory, such as /pfs/imagenet.")
    aliases: Annotated[tuple[DatasetPath, ...], Several] = Field(
        default=(),
        max_length=16,
        description="Other paths by which programs reach the same directory.",
    )
    include: Patterns = Field(
        default=("**",), description="Files to stage, as patterns relative to path."
    )
    exclude: Patterns = Field(
        default=(), description="Files not to stage, although they are included."
    )
    never: Patterns = Field(
        default=NEVER,
        description="Names that are left to the origin wherever they are.",
    )
    index: AnyPath | None = Field(
        default=None,
        description="A file made by `monarch index`, loaded instead of a scan.",
    )


class Tier(Section):
    """A medium of the node that holds copies of files."""

    name: TierName = Field(description="Its name in reports; each tier has its own.")
    kind: Literal["ram", "ssd"] = Field(description="ram (a tmpfs) or ssd.")
    path: TierPath = Field(
        default="/dev/shm", description="The directory that it is made in."
    )
    capacity: Capacity = Field(
        default=Size(SizeKind.AUTO),
        description="What it may hold: a size (8GiB), a share (40%), all-but 10GiB, or "
        "auto. The whole is the job's memory limit for ram and the file system for "
        "ssd. auto is 25% of that limit and at most half of the free memory for ram, "
        "80% of the free space for ssd.",
    )
    headroom: Headroom = Field(
        default=Size(SizeKind.BYTES, 0),
        description="What stays free whatever the capacity: a size or a share.",
    )


class ColdOpen(Section):
    """What happens when a program opens a file that is not staged yet."""

    mode: Literal["auto", "wait", "through"] = Field(
        default="auto",
        description="wait: the open waits for the copy. through: it reads the origin "
        "while the copy is made. auto: wait up to wait_max, through above.",
    )
    wait_max: Bytes = Field(
        default=8 << 20, description="The largest file that auto waits for."
    )
    timeout: Annotated[float, Within("100ms", "1h")] = Field(
        default=30.0,
        description="How long an open waits before it takes the origin.",
    )


class Fill(Section):
    """Staging in the background of files that nobody has opened yet."""

    enabled: bool = Field(default=True, description="true or false.")
    concurrency: int = Field(
        default=4, ge=1, le=64, description="How many files are copied at once."
    )
    bandwidth: Bandwidth = Field(
        default=Size(SizeKind.UNLIMITED),
        description="The most to take from the origin: a rate (200MB/s) or unlimited.",
    )

    @property
    def bytes_per_s(self) -> int | None:
        """Return the bandwidth, None if it is unlimited."""
        limited = self.bandwidth.kind is SizeKind.BYTES
        return int(self.bandwidth.amount) if limited else None


class Catalog(Section):
    """Finding out what there is to stage, before the program starts."""

    wait_max: Annotated[float, Within("0s", "7d")] = Field(
        default=600.0,
        description="How long the program's start waits for it; later the program "
        "runs without Monarch.",
    )
    scan_threads: int = Field(
        default=16, ge=1, le=256, description="How many directories are read at once."
    )


class Peers(Section):
    """The nodes of a job, each serving the others what it holds."""

    mode: Literal["off", "partition", "replicate", "auto"] = Field(
        default="auto",
        description="partition: one copy of each file in the job. replicate: one on "
        "every node. auto: as many as fit. off: every node works alone.",
    )
    interface: Interface | None = Field(
        default=None,
        description="The network interface (ib0), or its address, that the agents "
        "talk through. null: any.",
    )
    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=0,
        description="Where an agent listens; if it is taken, one of the seven above. "
        "0: anywhere, as the agents tell each other in rendezvous.",
    )
    rendezvous: AnyPath | None = Field(
        default=None,
        description="A directory that all nodes share, where they leave their "
        "addresses and the job's secret. null: monarch-staging below XDG_STATE_HOME "
        "or ~/.local/state.",
    )
    secret_file: AnyPath | None = Field(
        default=None,
        description="A file of 32 random bytes, the same on every node, instead of "
        "the secret in rendezvous.",
    )
    integrity: Literal["auto", "mac", "checksum"] = Field(
        default="auto",
        description="How files from other nodes are checked. mac: by a key of the job, "
        "against faults and against who sits on the network. checksum: against faults "
        "alone. auto: mac if every node has OpenSSL's libcrypto.",
    )
    timeout: Annotated[float, Within("50ms", "60s")] = Field(
        default=1.0,
        description="How long a node may be silent before the next one, or the "
        "origin, is asked.",
    )
    join_timeout: Annotated[float, Within("100ms", "1h")] = Field(
        default=10.0,
        description="How long the nodes wait for each other at the start; who comes "
        "later works alone until it has joined.",
    )
    transit: Bytes = Field(
        default=256 << 20,
        description="The memory for files on their way to a program from a node that "
        "keeps them; it counts in the share of the ram tiers.",
    )


class Agent(Section):
    """The process that does the staging on each node."""

    linger: Annotated[float, Within("0s", "1h")] = Field(
        default=10.0,
        description="How long it stays for what the job's programs left running.",
    )


class Programs(Section):
    """Which programs of the job are served."""

    exclude: Annotated[tuple[ProgramName, ...], Several] = Field(
        default=(), max_length=32, description="Names of programs that are left alone."
    )


class Report(Section):
    """The account of where the job's bytes came from."""

    file: AnyPath | None = Field(
        default=None,
        description="The JSON file that it is written to; %j stands for the job, %n "
        "for the node, %t for the time.",
    )


class Log(Section):
    """What the agent writes down about its own work."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least that is worth writing down."
    )


class Config(Section):
    """The configuration of a job."""

    schema_version: Literal[1] = Field(
        default=1, alias="schema", description="The version of this file's form."
    )
    datasets: Annotated[tuple[Dataset, ...], Several] = Field(
        default=(), max_length=64, description="The directories whose files are staged."
    )
    tiers: Annotated[tuple[Tier, ...], Several] = Field(
        default=(Tier(name="ram", kind="ram"),),
        min_length=1,
        max_length=TIERS_MAX,
        description="Where copies are kept on each node, fastest first.",
    )
    cold_open: ColdOpen = Field(default=ColdOpen())
    fill: Fill = Field(default=Fill())
    catalog: Catalog = Field(default=Catalog())
    hosts: Hosts = Field(
        default=(),
        description="The nodes of the job, the same list on each, where no scheduler "
        "names them: names, name:port, or lists such as n[0-3].",
    )
    peers: Peers = Field(default=Peers())
    agent: Agent = Field(default=Agent())
    programs: Programs = Field(default=Programs())
    report: Report = Field(default=Report())
    retain: Retain = Field(
        default="job",
        description="How long copies are kept: job (until it ends), node (until "
        "someone needs the room), or a duration such as 7d.",
    )
    log: Log = Field(default=Log())
