"""A Slurm of several nodes on this machine, with ports and directories of its own."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from support import processes
from support.processes import wait_until

PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "salloc", "scancel", "scontrol")
CGROUPS = Path("/sys/fs/cgroup")
NODES = 4
END_S = 20.0
# Between TERM and KILL.
KILL_WAIT_S = 5

# No munge and no database. More CPUs than exist, so that each test's steps fit.
CONFIGURATION = """\
ClusterName=monarch
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/{task}
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerNode=500
SchedulerType=sched/builtin
SlurmdParameters=config_overrides
KillWait={kill_wait}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = """\
NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=32 \
RealMemory=4000
"""
# Slurm 22.05 always needs this file; IgnoreSystemd: systemd may be missing.
CGROUP = """\
CgroupPlugin=cgroup/v1
IgnoreSystemd=yes
ConstrainRAMSpace=yes
"""


def missing(proctrack: str) -> str | None:
    """The missing requirement for such a Slurm, or None."""
    for program in PROGRAMS:
        if shutil.which(program) is None:
            return f"needs {program} (Debian: slurmctld slurmd slurm-client)"
    if proctrack == "cgroup" and not (CGROUPS / "freezer" / "tasks").exists():
        return "needs the freezer of cgroup v1 at /sys/fs/cgroup/freezer"
    return None


@dataclass(frozen=True, slots=True)
class Slurm:
    """A running Slurm; its commands find it by the variable SLURM_CONF."""

    folder: Path
    proctrack: str
    nodes: tuple[str, ...]

    @property
    def environ(self) -> dict[str, str]:
        """The environment of its commands."""
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def ask(self, *words: str) -> str:
        """Run one of its short commands and return its output."""
        done = subprocess.run(
            words,
            env={**os.environ, **self.environ},
            capture_output=True,
            text=True,
            timeout=END_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def queue(self) -> list[str]:
        """The ids of the jobs that it has, pending ones included."""
        return self.ask("squeue", "-h", "-r", "-o", "%i").split()

    def idle(self) -> bool:
        """Whether no job is left and every node can take one."""
        states = self.ask("sinfo", "-h", "-N", "-o", "%t").split()
        return not self.queue() and states == ["idle"] * len(self.nodes)

    def log(self) -> str:
        """The last lines of all its logs."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"-- {p.name}\n{p.read_text()[-1500:]}" for p in logs)

    def clear(self) -> None:
        """End all jobs, and wait until the nodes are free again."""
        if jobs := self.queue():
            self.ask("scancel", *jobs)
        wait_until(self.idle, "nodes without jobs", END_S)


@contextmanager
def started(folder: Path, proctrack: str, nodes: int = NODES) -> Iterator[Slurm]:
    """A started Slurm; ended with all that it runs."""
    # On one machine only the names distinguish the nodes' cgroups.
    names = tuple(f"m{os.getpid()}n{number}" for number in range(nodes))
    slurm = Slurm(folder, proctrack, names)
    _configure(slurm)
    with ExitStack() as running:
        running.callback(_remove_cgroups, names)
        running.callback(_kill_rest, folder)
        running.enter_context(_daemon(slurm, "slurmctld", "-D"))
        for name in names:
            running.enter_context(_daemon(slurm, "slurmd", "-D", "-N", name))
        _await_answer(slurm)
        running.callback(_clear_gently, slurm)
        yield slurm


def _configure(slurm: Slurm) -> None:
    """Write the configuration, with ports that are free at this moment."""
    host, (control, *ports) = socket.gethostname(), _free_ports(len(slurm.nodes) + 1)
    text = CONFIGURATION.format(
        host=host,
        port=control,
        folder=slurm.folder,
        proctrack=slurm.proctrack,
        task="cgroup" if slurm.proctrack == "cgroup" else "none",
        kill_wait=KILL_WAIT_S,
    )
    for name, port in zip(slurm.nodes, ports, strict=True):
        text += NODE.format(name=name, host=host, port=port)
    (slurm.folder / "state").mkdir()
    (slurm.folder / "slurm.conf").write_text(text)
    (slurm.folder / "cgroup.conf").write_text(CGROUP)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as sockets:
        found = []
        for _ in range(count):
            bound = sockets.enter_context(socket.socket())
            bound.bind(("127.0.0.1", 0))
            found.append(int(bound.getsockname()[1]))
        return found


@contextmanager
def _daemon(slurm: Slurm, *words: str) -> Iterator[None]:
    """A daemon in the foreground, as our child; ended by its pid."""
    log = slurm.folder / f"{words[0]}{words[-1]}.out.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, **slurm.environ},
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_answer(slurm: Slurm) -> None:
    def answers() -> bool:
        try:
            return slurm.idle()
        except AssertionError:
            return False  # the controller does not listen yet

    try:
        wait_until(answers, "a Slurm that answers", END_S)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{slurm.log()}") from None


def _clear_gently(slurm: Slurm) -> None:
    """End the jobs that a failed test has left; what resists is killed after."""
    try:
        slurm.clear()
    except AssertionError:
        return


def _kill_rest(folder: Path) -> None:
    """Kill what outlives the daemons: each has our configuration's path in it."""
    processes.kill_marked(folder / "slurm.conf", environ=True)


def _remove_cgroups(names: tuple[str, ...]) -> None:
    """Remove the empty cgroups that slurmd leaves."""
    for top in [top for name in names for top in CGROUPS.glob(f"*/slurm_{name}")]:
        for folder, _, _ in os.walk(top, topdown=False):
            os.rmdir(folder)
