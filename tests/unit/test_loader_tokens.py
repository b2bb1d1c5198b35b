"""`readers_max`: concurrent readers over all nodes, whoever dies meanwhile (L3)."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from monarch.loader.tokens import TokenServer, token_taker
from support.latency_source import LatencySource, loader_of, outstanding

# The threads of a reader end with its process, and their connections with them.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

HOLDER = """
import sys, time
from monarch.loader.tokens import token_taker
take = token_taker({"token_server": [sys.argv[1], int(sys.argv[2]), sys.argv[3]]})
take()
print("holds", flush=True)
time.sleep(60)
"""


class Gauge:
    """How many are within it, and how many were at most."""

    def __init__(self):
        self.now = self.most = self.entries = 0
        self._lock = threading.Lock()

    def stay(self, time_s):
        with self._lock:
            self.now += 1
            self.entries += 1
            self.most = max(self.most, self.now)
        time.sleep(time_s)
        with self._lock:
            self.now -= 1


@pytest.fixture
def make_server():
    made = []

    def make(tokens):
        made.append(TokenServer(tokens, "127.0.0.1"))
        return made[-1]

    yield make
    for server in made:
        server.close()


def taker_of(server):
    return token_taker({"token_server": server.address, "readers_max": 1})


def read_by(count, server, gauge, times=5):
    """So many readers read some times each; returns their threads."""

    def read(take):
        for _ in range(times):
            give_back = take()
            gauge.stay(0.01)
            give_back()

    threads = [
        threading.Thread(target=read, args=(taker_of(server),)) for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    return threads


@pytest.mark.parametrize("tokens", [2, 3])
def test_no_more_readers_than_tokens_run_at_once_and_all_finish(make_server, tokens):
    """Eight readers, also where their number is no multiple of the tokens."""
    gauge = Gauge()

    for thread in read_by(8, make_server(tokens), gauge):
        thread.join(20)

    assert gauge.entries == 40
    assert gauge.most == tokens


def test_the_token_of_a_holder_that_dies_is_granted_again(make_server):
    server = make_server(1)
    address = [str(part) for part in server.address]
    with subprocess.Popen(
        [sys.executable, "-P", "-c", HOLDER, *address], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        gauge = Gauge()
        threads = read_by(2, server, gauge, times=1)
        time.sleep(0.2)
        assert gauge.entries == 0
        os.kill(holder.pid, signal.SIGKILL)
        for thread in threads:
            thread.join(4)
    assert (gauge.entries, gauge.most) == (2, 1)


def test_readers_continue_when_the_token_server_is_lost(make_server, capfd):
    server = make_server(1)
    take = taker_of(server)
    take()()
    server.close()
    time.sleep(1.2)

    take()()
    take()()

    assert capfd.readouterr().err.count("readers_max is no longer enforced") == 1


def test_strangers_get_no_token(make_server):
    server = make_server(1)
    host, port, _ = server.address
    stranger = token_taker({"token_server": [host, port, "00" * 16]})

    stranger()

    gauge = Gauge()
    for thread in read_by(1, server, gauge, times=1):
        thread.join(4)
    assert gauge.entries == 1


def test_readers_max_is_kept_by_one_node_alone(tmp_path):
    log = tmp_path / "log"
    source = LatencySource(200_000, 1000, 0.01, log=str(log))
    with loader_of(source, 16, readers_max=3) as loader:
        for number, _ in enumerate(loader):
            if number == 3:
                break
    assert outstanding(log) == 3
