"""The Shim in awkward processes: early, forked, cancelled, signalled, static."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.shim_fixtures import Board, Compile

SOAK_SECONDS = os.environ.get("MONARCH_SOAK_SECONDS", "3")
LAUNCHED, ACTIVE = 2, 3
READY_SITUATIONS = [
    *("early", "errno", "null", "closefrom", "fork", "small-stack", "no-descriptors"),
    *("reused-number", "mapped", "direct", "signal", "cancel-outside"),
]


@pytest.fixture
def behave(compiled: Compile) -> Path:
    """The program that puts itself into a situation."""
    return compiled("behave.c")


@pytest.mark.parametrize("situation", READY_SITUATIONS)
def test_ready_files_are_served(board: Board, behave: Path, situation: str) -> None:
    board.start()
    board.ask("publish two.bin")

    assert board.run(behave, situation, board.root / "two.bin") == "ok\n"


@pytest.mark.root
def test_direct_open_is_served_by_a_tier_without_o_direct(
    board: Board, behave: Path
) -> None:
    if subprocess.run(["mount", "-t", "ramfs", "none", board.tier]).returncode:
        pytest.skip("cannot mount a ramfs")
    try:
        board.start()
        board.ask("publish two.bin")

        assert board.run(behave, "direct", board.root / "two.bin") == "ok\n"
        assert board.counters()["opens_hit_tier0"] == 1
        assert board.counters()["origin_lost"] == 0
    finally:
        board.end()
        subprocess.run(["umount", board.tier], check=True)


def test_open_that_waits_can_be_cancelled(board: Board, behave: Path) -> None:
    board.start("-n")

    assert board.run(behave, "cancel", board.root / "two.bin") == "ok\n"


def test_signal_handler_opens_while_its_thread_waits(
    board: Board, behave: Path
) -> None:
    board.start("-d", "200")

    assert board.run(behave, "signal", board.root / "two.bin") == "ok\n"
    assert board.counters()["opens_miss"] == 2


def test_errno_is_kept_when_a_replica_is_lost(board: Board, behave: Path) -> None:
    board.start()
    board.ask("publish two.bin")
    board.ask("lose two.bin")

    assert board.run(behave, "errno-lost", board.root / "two.bin") == "ok\n"
    assert board.counters()["origin_lost"] == 1


def test_vfork_child_does_not_wait(board: Board, behave: Path) -> None:
    board.start("-n")

    assert board.run(behave, "vfork", board.root / "two.bin") == "ok\n"
    assert board.counters()["origin_vfork"] == 1


def test_fork_child_takes_a_slot_of_its_own(board: Board, behave: Path) -> None:
    board.start()
    board.ask("publish two.bin")

    board.run(behave, "fork", board.root / "two.bin")

    slots = board.processes()
    assert [(state, name) for _, state, name in slots] == [(ACTIVE, str(behave))] * 2
    assert slots[0][0] != slots[1][0]


def test_static_program_reads_the_origin_and_stays_visible(
    board: Board, compiled: Compile
) -> None:
    program = compiled("reader.c", "-static", name="reader-static")
    board.start()
    board.ask("publish two.bin")

    shown = board.run("sh", "-c", f"{program} {board.root}/two.bin; exit $?")

    assert shown == "two.b\n"
    assert (LAUNCHED, str(program)) in [slot[1:] for slot in board.processes()]
    assert board.counters()["opens_hit_tier0"] == 0


def test_raw_system_calls_read_the_origin(board: Board, compiled: Compile) -> None:
    program = compiled("reader.c", "-DRAW", name="reader-raw")
    board.start()
    board.ask("publish two.bin")

    assert board.run(program, board.root / "two.bin") == "two.b\n"
    assert board.counters()["opens_hit_tier0"] == 0


def test_deepbind_library_reads_the_origin(
    board: Board, behave: Path, compiled: Compile
) -> None:
    flags = ("-DLIBRARY", "-shared", "-fPIC")
    library = compiled("reader.c", *flags, name="libreader.so")
    board.start()
    board.ask("publish two.bin")

    env = board.environ(DEEP_LIBRARY=str(library))

    assert board.run(behave, "deepbind", board.root / "two.bin", env=env) == "ok\n"


def test_library_whose_constructor_waits_for_a_thread_is_loaded(
    board: Board, compiled: Compile
) -> None:
    library = compiled("joining.c", "-shared", "-fPIC", name="libjoining.so")
    board.start()

    script = f"import ctypes; ctypes.CDLL('{library}')"

    assert board.run(sys.executable, "-c", script) == "used\n"


def test_failed_exec_leaves_the_process_active(board: Board, probe: Path) -> None:
    board.start()

    done = subprocess.run([probe, "exec", "execve", "/nowhere"], env=board.environ())

    assert done.returncode == 1
    assert [slot[1:] for slot in board.processes()] == [(ACTIVE, str(probe))]


def test_failed_exec_of_a_vfork_child_is_no_program(board: Board) -> None:
    board.start()
    script = (
        "import subprocess as s, os\n"
        "try: s.run(['no-such-program'], env={'PATH': '/a:/b:/c'})\n"
        "except FileNotFoundError: print('absent')\n"
    )

    assert board.run(sys.executable, "-c", script) == "absent\n"
    assert {state for _, state, _ in board.processes()} == {ACTIVE}


def test_exec_keeps_the_slot_of_the_process(board: Board, probe: Path) -> None:
    board.start()

    board.run(probe, "exec", "execve", probe)

    assert [slot[1:] for slot in board.processes()] == [(ACTIVE, str(probe))]


def test_disable_is_respected_by_exec(board: Board) -> None:
    board.start()
    script = "env -i MONARCH_STAGING_DISABLE=1 /usr/bin/env"

    assert board.run("sh", "-c", script) == "MONARCH_STAGING_DISABLE=1\n"


def test_setuid_program_is_not_injected(board: Board, probe: Path) -> None:
    program = board.folder / "setuid-probe"
    program.write_bytes(probe.read_bytes())
    program.chmod(0o4755)
    board.start()

    assert board.run(probe, "exec", "execve", program) == "-\n"


def test_python_subprocess_with_an_empty_environment_stays_covered(
    board: Board,
) -> None:
    board.start()
    board.ask("publish two.bin")
    script = (
        "import subprocess as s;"
        f"s.run(['/bin/cat', '{board.root}/two.bin'], env={{}}, check=True)"
    )

    assert board.run("python3", "-c", script).startswith("two.bin")
    assert board.counters()["opens_hit_tier0"] == 1


def test_environment_that_fits_only_without_us_is_passed_on(board: Board) -> None:
    board.start()
    script = (
        "import os, resource\n"
        "limit = 3 * 2**17\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_STACK)\n"
        "resource.setrlimit(resource.RLIMIT_STACK, (4 * limit, hard))\n"
        "def start(bytes_):\n"
        "  pid = os.fork()\n"
        "  if pid: return os.waitpid(pid, 0)[1]\n"
        "  env = {'A%d' % i: 'x' * 100_000 for i in range(bytes_ // 100_000)}\n"
        "  env['B'] = 'x' * (bytes_ % 100_000)\n"
        "  try: os.execve('/bin/true', ['true'], env)\n"
        "  except OSError: os._exit(1)\n"
        "low, high = 100, 2 * limit\n"
        "while high - low > 1:\n"
        "  middle = (low + high) // 2\n"
        "  low, high = (middle, high) if start(middle) == 0 else (low, middle)\n"
        "print(low)\n"
    )
    plain = {**board.environ(), "MONARCH_STAGING_DISABLE": "1"}

    most = int(board.run(sys.executable, "-c", script))

    assert most == int(board.run(sys.executable, "-c", script, env=plain))


def soak(board: Board, program: Path, **environ: str) -> dict[str, int]:
    """Runs the soak over 200 Files, half of them staged, and checks the outcome."""
    for number in range(200):
        (board.root / "soak" / f"{number:03}").parent.mkdir(exist_ok=True)
        (board.root / "soak" / f"{number:03}").write_bytes(b"%03d " % number * 500)
    board.start("-d", "1")
    for number in range(0, 200, 2):
        board.ask(f"publish soak/{number:03}")
    env = board.environ(**environ)
    command = [str(program), "32", SOAK_SECONDS, str(board.root / "soak")]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return board.counters()


@pytest.mark.timeout(300)
def test_threads_and_forks_see_no_wrong_byte_and_leak_nothing(
    board: Board, compiled: Compile
) -> None:
    counters = soak(board, compiled("soak.c"))

    assert counters["opens_hit_tier0"] > 1000
    assert counters["opens_miss"] >= 100


@pytest.mark.timeout(300)
@pytest.mark.parametrize("order", ["before", "after"])
def test_jemalloc_beside_the_shim_works(
    board: Board, compiled: Compile, order: str
) -> None:
    found = sorted(Path("/usr/lib").glob("*/libjemalloc.so.2"))
    if not found:
        pytest.skip("needs libjemalloc2")
    libraries = [str(found[0]), str(board.run_dir / "shim.so")]
    preload = ":".join(libraries if order == "before" else reversed(libraries))

    counters = soak(board, compiled("soak.c"), LD_PRELOAD=preload)

    assert counters["opens_hit_tier0"] > 1000
