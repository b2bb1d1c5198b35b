"""Rights of processes: no Replica grants access that the origin would refuse."""

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from monarch.native import DTYPES
from support.shim_fixtures import Board

pytestmark = pytest.mark.root

SOMEBODY, NOBODY = 1, 65534
LAUNCHED, ACTIVE = 2, 3
WITHOUT_CAPABILITIES = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
DROPS = {
    "capset": (
        "h = (ctypes.c_uint32 * 2)(0x20080522, 0); s = (ctypes.c_uint32 * 6)()\n"
        "assert libc.capset(h, s) == 0"
    ),
    "setfsuid": f"libc.setfsuid({NOBODY})",
    "setfsgid": f"libc.setfsgid({NOBODY}); libc.setfsuid({NOBODY})",
    "seteuid": f"os.seteuid({NOBODY})",
}
ASK = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def tell(call, *arguments):
    try:
        result = call(*arguments)
    except PermissionError:
        result = "refused"
    print(result if result in (False, "refused") else "given")
def ask():
    tell(os.open, "{root}/secret", os.O_RDONLY)
    tell(os.stat, "{root}/closed/inner")
    tell(os.access, "{root}/closed/inner", os.F_OK)
"""


@pytest.fixture
def guarded(board: Board) -> Board:
    """A board with a file and a directory that are another user's alone."""
    secret, closed = board.root / "secret", board.root / "closed"
    secret.write_text("secret")
    closed.mkdir()
    (closed / "inner").write_text("inner")
    for path, mode in ((secret, 0o600), (closed, 0o700)):
        os.chown(path, SOMEBODY, SOMEBODY)
        path.chmod(mode)
    for folder in board.root.parents:
        if not folder.stat().st_mode & 0o001:
            folder.chmod(0o711)
    board.start()
    board.ask("publish-all")
    return board


def ask(board: Board, *before: str, change: str = "", disable: str = "0") -> list[str]:
    """How a Python program is answered about what is another user's."""
    env = board.environ(MONARCH_STAGING_DISABLE=disable)
    script = f"{ASK.replace('{root}', str(board.root))}\n{change}\nask()"
    return board.run(*before, sys.executable, "-c", script, env=env).split()


def hits(board: Board) -> int:
    """How many opens were served by a Replica."""
    return board.counters()["opens_hit_tier0"]


def test_process_with_all_rights_is_served(guarded: Board) -> None:
    assert ask(guarded) == ["given"] * 3
    assert hits(guarded) > 0


def test_process_without_capabilities_is_refused_what_the_origin_refuses(
    guarded: Board,
) -> None:
    answers = ask(guarded, *WITHOUT_CAPABILITIES)

    assert answers == ask(guarded, *WITHOUT_CAPABILITIES, disable="1")
    assert answers == ["refused", "refused", "False"]
    assert [slot[1] for slot in guarded.processes()] == [LAUNCHED]  # not active in it


@pytest.mark.parametrize("drop", DROPS)
def test_process_that_drops_rights_is_refused_what_the_origin_refuses(
    guarded: Board, drop: str
) -> None:
    answers = ask(guarded, change=DROPS[drop])

    assert answers == ask(guarded, change=DROPS[drop], disable="1")
    assert answers[:2] == ["refused", "refused"]


def test_process_that_drops_a_group_is_not_served(board: Board) -> None:
    board.start()
    board.ask("publish-all")
    script = (
        "import os\n"
        "os.setgroups(os.getgroups()); print(open('{0}').read(3))\n"
        "os.setgroups([12]); print(open('{0}').read(3))\n"
    ).replace("{0}", str(board.root / "two.bin"))

    assert board.run(sys.executable, "-c", script) == "two\ntwo\n"
    assert hits(board) == 1


@pytest.mark.parametrize(
    ("groups", "served"),
    [("--clear-groups", 0), ("--groups=0,7", 0), ("--groups=7", 1)],
)
def test_process_with_other_groups_than_the_agent_is_not_served(
    board: Board, groups: str, served: int
) -> None:
    board.start(under=("setpriv", "--groups=7"))
    board.ask("publish-all")

    shown = board.run("setpriv", groups, "cat", board.root / "two.bin")

    assert shown.startswith("two.bin")
    assert hits(board) == served


@pytest.mark.parametrize(
    ("agent", "groups", "served"),
    [
        ((), "--groups=0", 0),  # the agent may read files that no process in there may
        (WITHOUT_CAPABILITIES, "--groups=0", 1),
        (WITHOUT_CAPABILITIES, "--groups=0,7", 0),
    ],
)
def test_process_in_another_user_namespace_is_served_with_equal_rights_only(
    board: Board, agent: tuple[str, ...], groups: str, served: int
) -> None:
    board.start(under=("setpriv", "--groups=0", *agent))
    board.ask("publish-all")
    inner = ["setpriv", groups, "unshare", "-U", "-r", "cat", board.root / "two.bin"]

    assert board.run(*map(str, inner)).startswith("two.bin")
    assert hits(board) == served
    active = [slot[1] for slot in board.processes() if slot[2].endswith("cat")]
    assert active == [ACTIVE if served else LAUNCHED]


def test_access_is_checked_at_the_origin_where_the_scan_had_other_rights(
    board: Board,
) -> None:
    secret = board.root / "secret"
    secret.write_text("secret")
    os.chown(secret, SOMEBODY, SOMEBODY)
    secret.chmod(0o600)
    board.start(under=WITHOUT_CAPABILITIES)
    script = f"import os; print(os.access('{secret}', os.R_OK))"
    command = [*WITHOUT_CAPABILITIES, sys.executable, "-c", script]

    trusted = board.run(*command)
    forget_rights_of_scan(board)

    assert (trusted, board.run(*command)) == ("True\n", "False\n")


def forget_rights_of_scan(board: Board) -> None:
    """Lets the index say that it was scanned with other rights than the agent's."""
    with (board.run_dir / "catalog").open("r+b") as catalog:
        head = np.frombuffer(
            catalog.read(DTYPES["catalog"].itemsize), DTYPES["catalog"]
        )
        fields = DTYPES["index"].fields
        assert fields is not None
        catalog.seek(int(head[0]["roots"]["block"][0]) + fields["scan_rights"][1])
        catalog.write(bytes(4))


def test_write_of_a_process_with_other_rights_is_seen_by_the_others(
    board: Board,
) -> None:
    for folder in board.root.parents:
        if not folder.stat().st_mode & 0o001:
            folder.chmod(0o711)
    path = board.root / "two.bin"
    path.chmod(0o666)
    board.start()
    board.ask("publish-all")
    script = (
        f"import os; os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        f"open('{path}', 'r+').write('new')"
    )

    board.run(sys.executable, "-c", script)

    assert board.run("head", "-c", "3", path) == "new"


def test_write_of_a_program_left_alone_is_seen_by_the_others(board: Board) -> None:
    path = board.root / "two.bin"
    board.start("-f", "truncate")
    board.ask("publish-all")

    board.run("truncate", "-s", "3", path)

    assert board.run("cat", path) == "two"


@pytest.fixture
def program(board: Board) -> Path:
    """A program in the dataset, whose Replica is ready."""
    path = board.root / "program"
    path.write_bytes(Path("/bin/echo").read_bytes())
    path.chmod(0o755)
    board.start()
    board.ask("publish-all")
    return path


@pytest.mark.parametrize(
    "start",
    [
        "os.execve(fd, ['program', 'started'], os.environ)",
        "os.execv(f'/proc/self/fd/{fd}', ['program', 'started'])",
        "os.execv(f'/dev/fd/{fd}', ['program', 'started'])",
        "libc.execveat(fd, b'', words, None, 0x1000)",
        "os.waitpid(os.posix_spawn(f'/proc/self/fd/{fd}', ['program', 'started'],"
        " os.environ), 0)",
        "libc.execvp(f'/proc/self/fd/{fd}'.encode(), words)",
        "libc.execvpe(f'/proc/self/fd/{fd}'.encode(), words, None)",
        "os.waitpid(os.posix_spawnp(f'/proc/self/fd/{fd}', ['program', 'started'],"
        " os.environ), 0)",
    ],
)
def test_redirected_descriptor_can_be_executed(
    board: Board, program: Path, start: str
) -> None:
    script = (
        "import ctypes, os; libc = ctypes.CDLL(None)\n"
        "words = (ctypes.c_char_p * 3)(b'program', b'started', None)\n"
        f"fd = os.open('{program}', os.O_RDONLY); os.set_inheritable(fd, True)\n{start}"
    )

    assert board.run(sys.executable, "-c", script) == "started\n"
    assert hits(board) == 1


def test_redirected_script_without_interpreter_is_run_by_a_shell(board: Board) -> None:
    script = board.root / "script"
    script.write_text("echo $1")
    script.chmod(0o755)
    board.start()
    board.ask("publish-all")

    shown = board.run("sh", "-c", f"exec 9<{script}; exec env /proc/self/fd/9 started")

    assert shown == "started\n"


@pytest.mark.parametrize("gone", ["os.unlink", "lambda name: os.rename(name, 'moved')"])
def test_redirected_descriptor_can_be_executed_by_any_name_left(
    board: Board, gone: str
) -> None:
    program = board.root / "program"
    shutil.copy("/bin/echo", program)
    os.link(program, program.with_name("zz-link"))
    board.start()
    board.ask("publish-all")
    script = (
        f"import os; fd = os.open('{program}', os.O_RDONLY)\n"
        f"os.set_inheritable(fd, True); ({gone})('{program}')\n"
        "assert os.access(f'/proc/self/fd/{fd}', os.X_OK)\n"
        "os.execv(f'/proc/self/fd/{fd}', ['program', 'started'])"
    )

    shown = board.run(sys.executable, "-c", script, cwd=board.folder)

    assert shown == "started\n"
    assert hits(board) == 1


def test_redirected_descriptor_has_the_access_of_its_file(
    board: Board, program: Path
) -> None:
    script = (
        "import ctypes, os; libc = ctypes.CDLL(None)\n"
        f"fd = os.open('{program}', os.O_RDONLY); name = f'/proc/self/fd/{{fd}}'\n"
        "print(os.access(name, os.X_OK),\n"
        "      os.access(name, os.X_OK, effective_ids=True),\n"
        "      libc.eaccess(name.encode(), os.X_OK),\n"
        "      libc.faccessat(fd, b'', os.X_OK, 0x1000))\n"
        f"print(os.access('{board.root}/two.bin', os.X_OK))"
    )

    assert board.run(sys.executable, "-c", script) == "True True 0 0\nFalse\n"


def test_setting_unchanged_rights_changes_nothing(board: Board) -> None:
    board.start()
    board.ask("publish-all")
    script = (
        "import ctypes, os; libc = ctypes.CDLL(None)\n"
        "libc.setfsuid(os.getuid()); libc.setfsgid(os.getgid()); os.setuid(0)\n"
        f"print(open('{board.root}/two.bin').read(3))"
    )

    assert board.run(sys.executable, "-c", script) == "two\n"
    assert hits(board) == 1


def test_program_started_after_a_change_of_root_directory_is_served_again(
    board: Board,
) -> None:
    board.start()
    board.ask("publish-all")
    path = board.root / "two.bin"
    script = (
        f"import os; os.chroot('/'); os.execve('/bin/cat', ['cat', '{path}'], {{}})"
    )

    assert board.run(sys.executable, "-c", script).startswith("two.bin")
    assert hits(board) == 1
