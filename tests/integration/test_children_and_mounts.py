"""Children that seem to be outside, threads with little room, mounts in between."""

import subprocess
import sys

import pytest

from support.shim_fixtures import Board, Compile, begin, python


def test_environment_beside_a_shell_that_libc_starts_is_the_programs(
    linked: Board, compiled: Compile
) -> None:
    program = compiled("getenv_beside.c")

    assert linked.run(program) == "new gone\n"


CHILDREN = {
    "many variables": "{f'V{i}': '1' for i in range(9000)}",
    "long list": "{'LD_PRELOAD': ':' * 2100}",
    "any directory": "{'MONARCH_STAGING_RUN': '/tmp'}",
    "another run": "{'MONARCH_STAGING_RUN': '/nonexistent'}",
}


@pytest.mark.parametrize("environment", CHILDREN)
@pytest.mark.parametrize("way", ["spawn", "exec", "vfork"])
def test_child_is_seen_however_its_environment_is_bent(
    linked: Board, environment: str, way: str
) -> None:
    words = "['/bin/sh', '-c', 'printf NEW > two.bin']"
    ways = {
        "spawn": f"os.waitpid(os.posix_spawn('/bin/sh', {words}, e), 0)",
        "exec": f"os.waitpid(os.fork() or os.execve('/bin/sh', {words}, e), 0)",
        "vfork": f"import subprocess; subprocess.run({words}, env=e)",
    }

    shown = python(
        linked,
        f"e = {CHILDREN[environment]}\n{ways[way]}\nprint(read('two.bin'))",
        stderr=None,
    )

    assert shown == "NEW\n"


def test_child_that_has_room_for_no_more_variables_is_not_served_beside(
    linked: Board,
) -> None:
    """The kernel gives arguments and environment a quarter of the stack's limit."""
    shown = python(
        linked,
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_STACK, (1 << 19, 1 << 19))\n"
        "def run(n, script):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        words = ['/bin/sh', '-c', script, 'x' * 60000, 'y' * n]\n"
        "        try: os.execve('/bin/sh', words, {'LD_PRELOAD': LIST})\n"
        "        except OSError: os._exit(99)\n"
        "    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "LIST = os.environ['LD_PRELOAD']\n"
        "low, high = 1, 131000\n"
        "while low < high:\n"
        "    half = (low + high + 1) // 2\n"
        "    low, high = (low, half - 1) if run(half, '') == 99 else (half, high)\n"
        "LIST = ''\n"
        "print(run(low - 4, 'printf NEW > two.bin'), read('two.bin'))",
    )

    assert shown == "0 NEW\n"


def test_file_that_an_action_of_posix_spawn_creates_shows_in_its_directory(
    linked: Board,
) -> None:
    shown = python(
        linked,
        "before = os.stat('a').st_mtime_ns\n"
        "flags = os.O_WRONLY | os.O_CREAT\n"
        "actions = [(os.POSIX_SPAWN_OPEN, 1, 'a/new', flags, 0o600)]\n"
        "p = os.posix_spawn('/bin/true', ['true'], os.environ, file_actions=actions)\n"
        "os.waitpid(p, 0); print(os.stat('a').st_mtime_ns > before)",
    )

    assert shown == "True\n"


def test_thread_with_the_least_stack_works_as_without_the_shim(
    board: Board, compiled: Compile
) -> None:
    begin(board, "two.bin")

    assert board.run(compiled("least_stack.c")) == "ok\n"


@pytest.mark.root
def test_mount_by_a_process_with_little_address_space_is_announced(
    board: Board,
) -> None:
    board.start("-p", "20000")
    board.ask("publish a/b/three.bin")
    cover = board.root.parent / "cover"
    (cover / "b").mkdir(parents=True)
    (cover / "b" / "three.bin").write_bytes(b"on top")
    script = (
        "import ctypes, os, resource, sys\n"
        "read = lambda: open('a/b/three.bin').read(3)\n"
        "before = read()\n"
        "if os.fork() == 0:\n"
        "    os.execv('/bin/sh', ['sh', '-c', 'ulimit -v 20000; '\n"
        f"             'mount --bind {cover} {board.root}/a'])\n"
        "os.wait(); print(before, read())"
    )
    shown = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", script],
        cwd=board.root,
        env=board.environ(),
        capture_output=True,
        text=True,
    )

    assert shown.stdout == "a/b on \n", shown.stderr


def test_child_of_a_run_whose_directory_was_removed_is_not_served_beside(
    linked: Board,
) -> None:
    shown = python(
        linked,
        "assert read('two.bin') == 'two'\n"
        f"import shutil; shutil.rmtree({str(linked.run_dir)!r})\n"
        "os.system('printf NEW > two.bin'); print(read('two.bin'))",
        stderr=subprocess.DEVNULL,
    )

    assert shown == "NEW\n"


def test_spawn_needs_no_room_on_the_stack_for_an_environment_that_is_whole(
    linked: Board, compiled: Compile
) -> None:
    many = {f"V{i}": "1" for i in range(7500)}

    assert linked.run(compiled("spawn_small.c"), env=linked.environ(**many)) == "ok\n"


COVER = """
import os, subprocess, sys
cover, place, *mounts = sys.argv[1:]
os.chdir(place)
for source, target in zip(mounts[::2], mounts[1::2]):
    subprocess.run(["mount", "--bind", source, target], check=True)
ours = {**os.environ, "LD_PRELOAD": os.environ["OURS"]}
subprocess.run(["sh", "-c", cover], env=ours)
"""


@pytest.mark.root
@pytest.mark.parametrize("way", ["covered directory", "another mount"])
def test_relative_name_from_another_mount_is_left_to_the_kernel(
    board: Board, way: str
) -> None:
    top, twin = board.folder / "top", board.folder / "twin"
    for folder in (top, twin):
        folder.mkdir()
    (top / "three.bin").write_bytes(b"on top")
    (board.root / "a" / "three.bin").write_bytes(b"below")
    begin(board, "a/three.bin")
    name = board.root.name
    if way == "covered directory":
        place, show, mounts = board.root / "a", "cat three.bin", [top, board.root / "a"]
    else:
        place, show = top, f"cat '{twin}/top/../{name}/a/three.bin'"
        mounts = [board.folder, twin, top, twin / name / "a"]
    command = ["unshare", "-m", sys.executable, "-c", COVER, show, place, *mounts]
    ours = {**board.environ(), "LD_PRELOAD": ""}

    shown = [
        subprocess.run(
            list(map(str, command)),
            env={**ours, "OURS": preload},
            capture_output=True,
            text=True,
        ).stdout
        for preload in ("", board.environ()["LD_PRELOAD"])
    ]

    assert shown == 2 * ["below" if way == "covered directory" else "on top"]


@pytest.mark.parametrize("way", ["system", "popen"])
def test_shell_that_libc_starts_without_any_environment_is_seen(
    linked: Board, way: str
) -> None:
    calls = {
        "system": "c.system(b'printf NEW > two.bin')",
        "popen": "c.pclose(ctypes.c_void_p(c.popen(b'printf NEW > two.bin', b'w')))",
    }

    shown = python(
        linked,
        "c = ctypes.CDLL(None); c.popen.restype = ctypes.c_void_p; c.clearenv()\n"
        f"{calls[way]}; rest = ctypes.c_void_p.in_dll(c, 'environ').value\n"
        "print(read('two.bin'), rest)",
    )

    assert shown == "NEW None\n"


def test_shell_with_many_variables_is_seen_after_its_run_directory_was_removed(
    linked: Board,
) -> None:
    shown = python(
        linked,
        "os.environ.update({f'V{i}': '1' for i in range(3000)})\n"
        f"import shutil; shutil.rmtree({str(linked.run_dir)!r})\n"
        "os.system('printf NEW > two.bin'); print(read('two.bin'))",
        stderr=subprocess.DEVNULL,
    )

    assert shown == "NEW\n"


@pytest.mark.parametrize("at", ["0", "len(old)"])
def test_child_with_two_lists_of_libraries_is_seen(linked: Board, at: str) -> None:
    shown = python(
        linked,
        "old = [f'{k}={v}'.encode() for k, v in os.environ.items()]\n"
        f"old.insert({at}, b'LD_PRELOAD=libm.so.6')\n"
        "e = (ctypes.c_char_p * (len(old) + 1))(*old)\n"
        "w = (ctypes.c_char_p * 4)(b'sh', b'-c', b'printf NEW > two.bin')\n"
        "if os.fork() == 0: ctypes.CDLL(None).execve(b'/bin/sh', w, e)\n"
        "os.wait(); print(read('two.bin'))",
    )

    assert shown == "NEW\n"
