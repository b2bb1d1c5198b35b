"""Two whole Stagers over the real native engine, server and receiver."""

import mmap
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from monarch import native
from monarch.metrics import AgentCounters
from monarch.native import (
    DTYPES,
    PeerReceiver,
    PeerServer,
    ReceiverOptions,
    ReplicaState,
    ServerOptions,
    word_parts,
)
from monarch.placement import Node, Placement
from monarch.stager import (
    FileTable,
    Policy,
    Replicas,
    Sources,
    Stager,
    StagerSettings,
    Storage,
    WrittenMarks,
)
from monarch.tiers import open_pool
from support.placements import place_sizes
from support.stages import memory_directory
from unit.test_native_staging import PATIENCE_MS, SIZES, Job, files_of, make_job

PATIENCE_S = PATIENCE_MS / 1000
NO_FILL = StagerSettings(fill=False, urgent_bytes_max=1 << 30)
SMALL = 2


@dataclass
class Agent:
    """What an agent composes; its only place for Files is the transit pool."""

    job: Job
    engine: native.Engine
    server: PeerServer
    receiver: PeerReceiver
    stager: Stager
    sources: Sources
    counters: AgentCounters
    asked: set[int] = field(default_factory=set)

    def turn(self) -> None:
        """Do what an agent's loop does, and ask as a program does."""
        for file in self.asked:
            if self.state(file) is ReplicaState.ABSENT:
                put_request(self.job, file)
        self.stager.turn()

    def state(self, file: int) -> ReplicaState:
        """The state of a File."""
        return word_parts(int(self.job.states[file]))[0]

    def tally(self, name: str) -> int:
        """A count of the data plane."""
        return self.stager.table.tally()[name]

    @property
    def used_bytes(self) -> int:
        """The bytes that the pool has not freed."""
        pool = self.stager.pool_account
        assert pool is not None
        return pool.used_bytes

    def recognises(self, ino: int) -> bool:
        """Whether descriptors of an inode are known as a Replica's."""
        slots = tail(self.job.board.inodes, "inodes").view(DTYPES["inode"])
        return ino in slots["ino"].tolist()


def put_request(job: Job, file: int) -> None:
    """The Shim's request for a File."""
    dtype = DTYPES["requests"]
    requests = np.asarray(job.board.requests)[: dtype.itemsize].view(dtype)
    requests[0]["slots"][0] = file + 1


def tail(memory: Any, name: str) -> npt.NDArray[np.uint8]:
    """The data behind the struct of a segment."""
    found: npt.NDArray[np.uint8] = memory[DTYPES[name].itemsize :]
    return found


def make_agent(base: Path, own: int, placement: Placement, stack: ExitStack) -> Agent:
    """An agent with a pool for two of the small Files in place of the job's Tier."""
    base.mkdir()
    job = make_job(base)
    files = files_of(job, SIZES)
    table = native.Table(files, 0, NO_FILL.urgent_bytes_max)
    pool = open_pool(base, 0)
    pool.directory, pool.capacity_bytes = job.tier, 2 * 8192
    storage, counters = Storage([], table, pool), AgentCounters()
    options = replace(job.options, table=table)
    engine = stack.enter_context(native.Engine(job.board, options))
    server = stack.enter_context(PeerServer(engine, ServerOptions(2)))
    receiver = stack.enter_context(PeerReceiver(engine, ReceiverOptions(2)))
    shared = FileTable(
        sizes=files.sizes,
        words=files.words,
        marks=WrittenMarks(files.root_marks, files.marks, lambda: None),
        name_of=lambda file: job.replica(file).name,
        inodes_of=lambda files, tier: [],
        inodes_in=lambda tier: [],
    )
    stager = Stager(Replicas(shared), engine, storage, NO_FILL, counters)
    policy = Policy.cluster(placement, own)
    stager.follow(policy)
    sources = Sources(policy, table, counters)
    stager.join(sources, receiver)
    return Agent(job, engine, server, receiver, stager, sources, counters)


@pytest.fixture
def agents() -> Iterator[list[Agent]]:
    """Two agents, each of which can ask the other."""
    sizes = np.array(SIZES, np.uint64)
    nodes = [Node("n0", 1 << 30), Node("n1", 1 << 30)]
    placement = place_sizes(nodes, sizes, 3, above_bytes=1 << 62)
    with memory_directory() as directory, ExitStack() as stack:
        both = [
            make_agent(directory / f"n{own}", own, placement, stack) for own in range(2)
        ]
        for own, agent in enumerate(both):
            asks, serves = socket.socketpair()
            both[1 - own].server.adopt(own, serves.detach())
            agent.receiver.connect(1 - own, asks.detach())
            assert agent.sources.due(1 - own)
            agent.sources.connected(1 - own)
        yield both
        for agent in both:
            agent.stager.stop()
            agent.receiver.close()
            agent.server.close()
            agent.engine.close()
            agent.stager.table.close()


def until(agents: list[Agent], reached: Callable[[], bool]) -> None:
    """Let both agents work until something is so."""
    end_s = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < end_s, agents
        for agent in agents:
            agent.turn()
        time.sleep(0.002)


def open_small(agents: list[Agent]) -> tuple[Agent, Agent]:
    """Let a program open the small File on the node that does not own it."""
    owner = agents[agents[0].sources.policy.owner(SMALL)]
    asker = agents[1 - owner.sources.policy.own]
    asker.asked.add(SMALL)
    until(agents, lambda: asker.state(SMALL) is ReplicaState.READY)
    asker.asked.clear()
    return owner, asker


def push_out(agents: list[Agent], *whom: Agent) -> None:
    """Let the small File leave some pools, by opening others."""
    for agent in whom:
        agent.asked |= {0, 1}
    until(agents, lambda: all(a.state(SMALL) is ReplicaState.ABSENT for a in whom))


def test_a_cold_file_is_fetched_from_its_owner_and_the_origin_is_read_once(agents):
    owner, asker = open_small(agents)
    assert asker.tally("peer_files") == owner.tally("staged_files") == 1

    assert (
        asker.job.replica(SMALL).read_bytes()
        == (owner.job.origin / f"file{SMALL}").read_bytes()
    )
    until(agents, lambda: owner.tally("origin_read_bytes") == SIZES[SMALL])
    assert asker.tally("origin_read_bytes") == 0
    assert asker.counters.agent_errors == owner.counters.agent_errors == 0


def test_space_is_freed_although_the_server_keeps_descriptors_open(agents):
    owner, asker = open_small(agents)
    ino = owner.job.replica(SMALL).stat().st_ino
    assert owner.recognises(ino)

    push_out(agents, owner, asker)

    until(agents, lambda: not owner.recognises(ino))
    until(agents, lambda: owner.used_bytes <= 2 * 4096 and owner.used_bytes > 0)
    assert owner.counters.agent_errors == 0


def test_a_replica_that_is_evicted_and_restaged_has_nothing_of_the_first(agents):
    owner, asker = open_small(agents)
    first = owner.job.replica(SMALL).stat().st_ino
    push_out(agents, owner, asker)
    for agent in agents:
        agent.asked.clear()
    owner.asked.add(SMALL)
    until(agents, lambda: owner.state(SMALL) is ReplicaState.READY)

    open_small(agents)

    # The same state word as before: the server must not confuse the two.
    assert owner.job.replica(SMALL).stat().st_ino != first
    until(agents, lambda: not owner.recognises(first))


@pytest.mark.parametrize("how", ["open", "mapped"])
def test_a_program_that_has_a_replica_open_keeps_it_and_its_identity(agents, how):
    _, asker = open_small(agents)
    fd = os.open(asker.job.replica(SMALL), os.O_RDONLY)
    ino = os.fstat(fd).st_ino
    content = os.pread(fd, SIZES[SMALL], 0)
    mapping = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    if how == "mapped":
        os.close(fd)

    push_out(agents, asker)
    until_s = time.monotonic() + 0.3
    until(agents, lambda: time.monotonic() > until_s)

    assert asker.recognises(ino)
    assert mapping[:] == content
    mapping.close()
    if how == "open":
        os.close(fd)
    until(agents, lambda: not asker.recognises(ino))
