"""An agent for tests of the launcher: speaks the protocol and follows a script."""

import fcntl
import json
import mmap
import os
import select
import shutil
import signal
import struct
import sys
import threading
import time
from pathlib import Path


class FakeAgent:
    """Carries out the steps of a script, one after the other."""

    def __init__(self, argv):
        self.run_dir = Path(argv[argv.index("--run-dir") + 1])
        self.notify_fd = int(argv[argv.index("--notify-fd") + 1])
        self.argv = argv
        script = json.loads(Path(os.environ["FAKE_AGENT_SCRIPT"]).read_text())
        self.layout, self.steps = script["layout"], script["steps"]
        self.journal = Path(script["journal"])
        self.lock = -1
        self.requests = self.counters = mmap.mmap(-1, 1)
        self.seen = set()

    def note(self, word, **facts):
        """Appends a line to the journal that the test reads."""
        with self.journal.open("a") as file:
            file.write(json.dumps({"event": word, "pid": os.getpid(), **facts}) + "\n")

    def play(self):
        """Carries out all steps."""
        self.note("start", argv=self.argv)
        for step, *arguments in self.steps:
            getattr(self, step)(*arguments)

    def take_lock(self):
        """Holds the lock of the run directory from now on."""
        self.lock = os.open(self.run_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def make_segments(self, version=None):
        """Makes requests and counters as a real agent of some version does."""
        version = version or self.layout["version"]
        self.counters = self._segment("counters", version)
        self.requests = self._segment("requests", version, agent_pid=os.getpid())
        (self.run_dir / "shim.so").symlink_to(self.layout["shim"])

    def _segment(self, name, version, **more):
        about = self.layout["segments"][name]
        head = {
            "seg.magic": b"MONARCH",
            "seg.version": version,
            "seg.kind": about["kind"],
            "seg.length": about["bytes"],
            "seg.generation": os.getpid(),
        }
        temporary = self.run_dir / f"{name}.new"
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.ftruncate(fd, about["bytes"])
        segment = mmap.mmap(fd, about["bytes"])
        for field, value in {**head, **more}.items():
            self._put(segment, name, field, value)
        temporary.rename(self.run_dir / name)
        return segment

    def _put(self, segment, name, field, value):
        offset, form = self.layout["segments"][name]["fields"][field]
        struct.pack_into(form, segment, offset, value)

    def place(self, source, name):
        """Puts a segment that the test has made into the run directory."""
        shutil.copyfile(source, self.run_dir / name)

    def beat(self):
        """Beats the heartbeat from now on."""

        def forever():
            while True:
                now_ns = time.monotonic_ns()
                self._put(self.requests, "requests", "heartbeat_ns", now_ns)
                time.sleep(0.05)

        threading.Thread(target=forever, daemon=True).start()

    def state(self, value):
        """Publishes the agent's state; waiting launchers look again each slice."""
        self._put(self.requests, "requests", "agent_state", value)

    def write(self, text):
        """Writes to the launcher."""
        remaining = text.encode()
        while remaining:
            remaining = remaining[os.write(self.notify_fd, remaining) :]

    def until(self, path):
        """Waits for a file of the test."""
        while not Path(path).exists():
            time.sleep(0.005)

    def follow(self):
        """Waits until all registered launchers have ended, or no process listens."""
        while True:
            self._look_at_slots()
            if self.seen and not any(map(alive, self.seen)):
                break
            if not self.seen and hung_up(self.notify_fd):
                self.note("abandoned")
                break
            time.sleep(0.01)
        self.note("finish", launchers=sorted(self.seen))

    def _look_at_slots(self):
        offset, form = self.layout["segments"]["counters"]["fields"]["slots_used_max"]
        (used,) = struct.unpack_from(form, self.counters, offset)
        for number in range(1, used):
            state, pid, begun = self._slot(number)
            if state == self.layout["launcher"]:
                self.seen.add((pid, begun))

    def _slot(self, number):
        start = self.layout["first_process"] + number * self.layout["process_bytes"]
        fields = self.layout["process"]
        for field in ("state", "pid", "starttime"):
            offset, form = fields[field]
            yield struct.unpack_from(form, self.counters, start + offset)[0]

    def clear(self):
        """Removes its files, as an agent that cannot start does."""
        for name in ("requests", "counters", "shim.so"):
            (self.run_dir / name).unlink()

    def remove(self):
        """Removes the run directory."""
        shutil.rmtree(self.run_dir)

    def sleep(self, seconds):
        """Does nothing for a while."""
        time.sleep(seconds)

    def kill(self, name):
        """Sends itself a signal."""
        self.note("signal")
        os.kill(os.getpid(), getattr(signal, name))

    def report_self(self):
        """Reports to the test what the agent has inherited."""
        status = Path("/proc/self/status").read_text().splitlines()
        self.note(
            "self",
            fds={fd: os.readlink(f"/proc/self/fd/{fd}") for fd in open_descriptors()},
            environment=sorted(os.environ),
            preload=os.environ.get("LD_PRELOAD"),
            cwd=os.getcwd(),
            session=os.getsid(0),
            parent=os.getppid(),
            cpus=len(os.sched_getaffinity(0)),
            signals=[x for x in status if x.startswith(("SigBlk", "SigIgn"))],
        )


def open_descriptors():
    """The descriptors that were open before listing them."""
    names = os.listdir("/proc/self/fd")
    return [fd for fd in names if os.path.lexists(f"/proc/self/fd/{fd}")]


def alive(process):
    """Whether a process (pid and start time) still runs."""
    pid, begun = process
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    fields = text.rpartition(")")[2].split()
    return fields[0] != "Z" and int(fields[19]) == begun


def hung_up(fd):
    """Whether the other end of the pipe is closed."""
    poll = select.poll()
    poll.register(fd, 0)
    return bool(poll.poll(0))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    FakeAgent(sys.argv[1:]).play()
