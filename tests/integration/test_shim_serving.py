"""The source of an open: the Replica, after a wait or at once, or the origin."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.shim_fixtures import Board

CAT = "/bin/cat"


def read(board: Board, path: str | Path, cwd: Path | None = None) -> str:
    """The contents of a file, as a program under the Shim reads them."""
    return board.run(CAT, path, cwd=cwd)


def python(board: Board, script: str, cwd: Path | None = None) -> str:
    """What a Python program under the Shim prints."""
    return board.run(sys.executable, "-c", script, cwd=cwd)


def is_staged(text: str) -> bool:
    """The origin's bytes are zeros, the Replica's are not."""
    return "\0" not in text


SPELLINGS = [
    *("{root}/a/b/three.bin", "{root}//a/./b///three.bin", "/{root}/a/b/three.bin"),
    *("{root}/a/../a/b/three.bin", "{root}/a/b/../../a/b/three.bin"),
    *("{root}/a/link.bin", "{root}/folder/three.bin", "{root}/a/b/.hidden"),
    *("{root}/..odd/x y", "{root}/./two.bin", "{root}/a/same.bin", "/.{root}/two.bin"),
    "{root}/../dataset/two.bin",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings_of_a_path_are_redirected(staged: Board, spelling: str) -> None:
    assert is_staged(read(staged, spelling.format(root=staged.root)))


NOT_OURS = ["{root}/folder/../one.bin", "{root}/missing/../two.bin"]


@pytest.mark.parametrize("spelling", NOT_OURS)
def test_parent_step_over_a_possible_link_reaches_the_origin(
    staged: Board, spelling: str
) -> None:
    path = spelling.format(root=staged.root)
    expected = Path(path).read_text() if os.path.exists(path) else None

    if expected is None:
        with pytest.raises(AssertionError, match="No such file"):
            read(staged, path)
    else:
        assert read(staged, path) == expected


@pytest.mark.parametrize(
    ("cwd", "path"),
    [
        (".", "two.bin"),
        (".", "./a/b/three.bin"),
        ("a", "../two.bin"),
        ("a/b", "../../a/./link.bin"),
        ("..", "dataset/two.bin"),
        ("folder", "three.bin"),
    ],
)
def test_relative_paths_are_redirected(staged: Board, cwd: str, path: str) -> None:
    assert is_staged(read(staged, path, cwd=staged.root / cwd))


def test_relative_path_in_a_deleted_directory_reaches_the_origin(
    staged: Board,
) -> None:
    gone = staged.folder / "gone"
    gone.mkdir()
    script = (
        f"import os; os.rmdir('{gone}')\n"
        "try: open('two.bin')\nexcept FileNotFoundError: print('absent')"
    )

    assert python(staged, script, cwd=gone) == "absent\n"


def test_working_directory_is_not_remembered(staged: Board) -> None:
    other = staged.folder / "other"
    other.mkdir()
    (other / "two.bin").write_text("other")
    script = (
        "import os, ctypes\n"
        "libc = ctypes.CDLL(None)\n"
        "print(open('two.bin').read(3))\n"
        f"libc.syscall(80, b'{other}')\n"
        "print(open('two.bin').read(5))\n"
    )
    if os.uname().machine != "x86_64":
        pytest.skip("the number of chdir is that of x86-64")

    assert python(staged, script, cwd=staged.root) == "two\nother\n"


def test_dirfd_is_known_by_identity_after_a_rename_elsewhere(staged: Board) -> None:
    moved = staged.folder / "moved"
    script = (
        f"import os; fd = os.open('{staged.root}/a', os.O_RDONLY)\n"
        "read = lambda name: os.read(os.open(name, 0, dir_fd=fd), 4)\n"
        "print(read('b/three.bin'), read('../two.bin'), read('same.bin'))\n"
    )

    assert not moved.exists()
    assert python(staged, script) == "b'a/b/' b'two.' b'one.'\n"


def test_trailing_slash_on_a_file_is_the_kernels_error(staged: Board) -> None:
    script = (
        "import os\n"
        f"for end in ('/', '/.', '/..'):\n"
        f"  for call in (os.open, lambda p, f: os.stat(p)):\n"
        f"    try: call('{staged.root}/two.bin' + end, 0); print('opened')\n"
        "    except NotADirectoryError: print('error')\n"
    )

    assert python(staged, script) == "error\n" * 6


def test_nofollow_on_a_link_is_the_kernels_error(staged: Board) -> None:
    script = (
        "import os\n"
        f"try: os.open('{staged.root}/a/link.bin', os.O_NOFOLLOW)\n"
        "except OSError as error: print(error.strerror)\n"
        f"print(os.read(os.open('{staged.root}/two.bin', os.O_NOFOLLOW), 3))\n"
    )

    assert python(staged, script) == "Too many levels of symbolic links\nb'two'\n"


def test_links_that_leave_the_root_and_fifos_are_the_origins(staged: Board) -> None:
    assert read(staged, staged.root / "away") == Path("/etc/hostname").read_text()
    assert staged.counters()["opens_hit_tier0"] == 0


def test_lstat_shows_the_link_and_stat_its_target(staged: Board) -> None:
    script = (
        f"import os; p = '{staged.root}/a/link.bin'\n"
        "print(oct(os.lstat(p).st_mode)[:4], os.stat(p).st_size, os.path.islink(p))\n"
    )
    size = (staged.root / "a/b/three.bin").stat().st_size

    assert python(staged, script) == f"0o12 {size} True\n"


def test_long_paths_are_left_to_the_kernel(staged: Board) -> None:
    path = f"{staged.root}/{'./' * 600}two.bin"

    assert "wo" in read(staged, path) or "\0" in read(staged, path)
    with pytest.raises(AssertionError, match="File name too long"):
        read(staged, f"{staged.root}/{'x' * 5000}")


def test_other_name_of_a_root_is_redirected(board: Board) -> None:
    alias = board.folder / "alias"
    alias.symlink_to(board.root)
    board.start("-a", str(alias))
    board.ask("publish two.bin")

    assert read(board, alias / "two.bin").startswith("two.bin")
    assert board.counters()["opens_hit_tier0"] == 1


def test_prefix_that_leads_elsewhere_is_ignored(board: Board) -> None:
    other = board.folder / "other"
    other.mkdir()
    (other / "two.bin").write_text("another two")
    board.start("-a", str(other))
    board.ask("publish two.bin")

    assert read(board, other / "two.bin") == "another two"


def test_name_that_begins_like_a_root_is_outside(staged: Board) -> None:
    beside = staged.folder / "dataset2"
    beside.write_text("beside")

    assert read(staged, beside) == "beside"


@pytest.mark.root
def test_private_mount_over_the_root_is_not_answered_for(staged: Board) -> None:
    script = (
        f"mount -t tmpfs none {staged.root} && "
        f"echo private > {staged.root}/two.bin && exec cat {staged.root}/two.bin"
    )
    env = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    inner = (
        f"LD_PRELOAD={staged.run_dir}/shim.so MONARCH_STAGING_RUN={staged.run_dir} "
        f"cat {staged.root}/two.bin"
    )
    command = script.replace(f"exec cat {staged.root}/two.bin", inner)

    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", command], env=env, capture_output=True, text=True
    )

    assert done.stdout == "private\n", done.stderr
    assert staged.ask("root") == "0"


def test_cold_file_is_waited_for(board: Board) -> None:
    board.start("-d", "20")

    assert read(board, board.root / "two.bin").startswith("two.bin")

    counters = board.counters()
    assert (counters["opens_miss"], counters["waits"]) == (1, 1)
    assert counters["bytes_miss"] == (board.root / "two.bin").stat().st_size


def test_file_ready_at_a_peer_is_a_peer_hit(board: Board) -> None:
    board.start("-d", "20", "-r")

    for _ in range(2):
        assert read(board, board.root / "two.bin").startswith("two.bin")

    counters = board.counters()
    assert (counters["opens_peer_hit"], counters["opens_miss"]) == (1, 0)
    assert counters["bytes_peer_hit"] == (board.root / "two.bin").stat().st_size
    assert counters["opens_hit_tier0"] == 1


def test_late_transfer_is_left_to_the_origin_and_not_awaited_again(
    board: Board,
) -> None:
    board.start("-n", "-t", "1000")
    path = board.root / "two.bin"

    begun = time.monotonic()
    script = f"print([open('{path}').read(3) for _ in range(5)])"
    shown = python(board, script)

    assert shown == f"{['two'] * 5}\n"
    assert board.counters()["origin_timeout"] == 5
    assert time.monotonic() - begun < 4


def test_silent_agent_is_not_waited_for(board: Board) -> None:
    board.start("-s")

    assert read(board, board.root / "two.bin").startswith("two.bin")
    assert board.counters()["origin_silent"] == 1
    assert board.ask("pending") == "0"


def test_agent_that_falls_silent_ends_the_wait(board: Board) -> None:
    board.start("-n")
    begun = time.monotonic()
    with subprocess.Popen(
        [CAT, str(board.root / "two.bin")], env=board.environ(), stdout=subprocess.PIPE
    ) as program:
        while board.ask("pending") == "0":
            pass
        assert board.agent is not None
        board.agent.kill()
        out, _ = program.communicate(timeout=30)

    assert out.startswith(b"two.bin")
    assert time.monotonic() - begun < 10


def test_a_file_without_room_is_not_waited_for_and_the_cause_is_counted(
    board: Board,
) -> None:
    board.start("-n")
    board.ask("refuse two.bin")

    assert read(board, board.root / "two.bin").startswith("two.bin")
    counters = board.counters()
    assert (counters["origin_full"], counters["origin_refused"]) == (1, 0)


def test_file_without_room_for_now_is_not_waited_for(board: Board) -> None:
    board.start("-n")
    board.ask("busy two.bin")

    assert read(board, board.root / "two.bin").startswith("two.bin")
    assert board.counters()["origin_busy"] == 1


@pytest.mark.parametrize("options", [("-w", "100"), ("-m", "through")])
def test_large_file_is_requested_and_read_through(
    board: Board, options: tuple[str, str]
) -> None:
    board.start("-n", *options)

    assert read(board, board.root / "two.bin").startswith("two.bin")

    assert board.counters()["origin_large"] == 1
    assert board.ask("pending") == "1"


def test_wait_mode_waits_for_large_files_too(board: Board) -> None:
    board.start("-m", "wait", "-w", "100")

    assert read(board, board.root / "two.bin").startswith("two.bin")
    assert board.counters()["opens_miss"] == 1


def test_lost_replica_is_read_from_the_origin_and_reported(board: Board) -> None:
    board.start("-n")
    board.ask("publish two.bin")
    board.ask("lose two.bin")

    assert read(board, board.root / "two.bin").startswith("two.bin")

    assert board.counters()["origin_lost"] == 1
    assert board.ask("pending") == "1"


def test_a_thread_that_was_already_woken_is_not_woken_again(board: Board) -> None:
    """Where none is idle, the bell is rung: once, until somebody has looked."""
    for number in range(3):
        (board.root / f"cold-{number}").write_bytes(b"cold")
    board.start("-n", "-m", "through")
    assert board.ask("rung") == "0 0"

    read(board, board.root / "cold-0")
    assert board.ask("rung") == "1 1"
    read(board, board.root / "cold-1")
    assert board.ask("rung") == "1 1"
    board.ask("answer")
    read(board, board.root / "cold-2")

    assert board.ask("rung") == "1 2"
    assert board.ask("pending") == "3"


def test_full_request_slots_lead_to_the_origin(board: Board) -> None:
    for number in range(4000):
        (board.root / f"many-{number}").write_bytes(b"large")
    (board.root / "tiny").write_bytes(b"tiny")
    board.start("-n", "-w", "4")
    names = f"'{board.root}/many-%d' % n"
    python(board, f"for n in range(4000): assert open({names}).read() == 'large'")

    assert read(board, board.root / "tiny") == "tiny"

    assert board.ask("pending") == "1024"
    assert board.counters()["origin_slots"] == 1


WRITES = [
    "open('{root}/two.bin', 'r+').write('new')",
    "open('{root}/two.bin', 'a').write('new')",
    "open('{root}/a/../two.bin', 'r+').write('new')",
    "open('{root}/../dataset/two.bin', 'r+').write('new')",
    "open('{outside}/two.bin', 'r+').write('new')",
    "import os; os.chdir('{root}/a'); open('../two.bin', 'r+').write('new')",
    "import os; os.truncate('{outside}/two.bin', 3)",
    "import os; os.chmod('{outside}/two.bin', 0o600)",
    "import os; os.rename('{outside}/two.bin', '{outside}/three')",
    "import os; os.unlink('{outside}/two.bin')",
    "f = open('{root}/two.bin'); open(f'/proc/self/fd/{{f.fileno()}}', 'a').write('n')",
    "f = open('{root}/two.bin'); open(f'/dev/fd/{{f.fileno()}}', 'r+').write('n')",
    "import os; f = open('{root}/two.bin'); os.truncate('/proc/%d/fd/%d' % "
    "(os.getpid(), f.fileno()), 3)",
]


def test_link_through_proc_names_the_origins_file(board: Board) -> None:
    board.start()
    board.ask("publish two.bin")
    path = board.root / "two.bin"
    script = (
        f"import ctypes; f = open('{path}')\n"
        "source = b'/proc/self/fd/%d' % f.fileno()\n"
        f"ctypes.CDLL(None).linkat(-100, source, -100, b'{board.root}/linked', 0x400)\n"
    )

    python(board, script)

    assert (board.root / "linked").samefile(path)


@pytest.mark.parametrize("write", WRITES)
def test_write_reaches_the_origin_and_is_seen_by_all(board: Board, write: str) -> None:
    path = board.root / "two.bin"
    outside = board.folder / "outside"
    outside.symlink_to(board.root)
    before = path.stat()
    board.start()
    board.ask("publish two.bin")
    replica = Path(board.ask("where two.bin"))
    kept = replica.read_bytes()

    python(board, write.format(root=board.root, outside=outside))

    assert board.ask("written two.bin") == "1"
    assert replica.read_bytes() == kept
    assert not path.exists() or path.stat().st_ctime_ns != before.st_ctime_ns
    if path.exists():
        shown = python(
            board,
            f"import os; p='{path}'; print(os.stat(p).st_size, len(open(p).read()))",
        )
        assert shown == f"{path.stat().st_size} {path.stat().st_size}\n"


def test_write_without_read_permission_bits_still_marks_before_the_call(
    board: Board,
) -> None:
    board.start()
    board.ask("publish two.bin")
    script = (
        "import os\n"
        f"try: os.open('{board.root}/two.bin', os.O_WRONLY | os.O_CREAT | os.O_EXCL)\n"
        "except FileExistsError: print('exists')\n"
    )

    assert python(board, script) == "exists\n"
    assert board.ask("written two.bin") == "1"


def test_mark_seen_by_one_process_is_obeyed_by_another(staged: Board) -> None:
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys\nfor line in sys.stdin:\n"
            f"  print(open('{staged.root}/two.bin').read(3), flush=True)",
        ],
        env=staged.environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        answers = []
        for _ in range(2):
            reader.stdin.write("\n")
            reader.stdin.flush()
            answers.append(reader.stdout.readline())
            python(staged, f"open('{staged.root}/two.bin', 'r+').write('new')")
        reader.stdin.close()

    assert answers == ["two\n", "new\n"]
