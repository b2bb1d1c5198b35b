"""Misleading names, inodes and users: no wrong answer, no stale byte."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.shim_fixtures import Board, Compile

AT_EMPTY_PATH = 0x1000
NOBODY = 65534


def python(board: Board, script: str) -> str:
    """The output of a Python program under the Shim."""
    return board.run(sys.executable, "-c", script)


def test_write_through_a_hard_link_outside_the_root_is_seen(board: Board) -> None:
    other = board.folder / "other"
    os.link(board.root / "two.bin", other)
    board.start()
    board.ask("publish two.bin")

    shown = python(
        board,
        f"open('{other}', 'r+').write('new')\n"
        f"print(open('{board.root}/two.bin').read(3))",
    )

    assert shown == "new\n"
    assert board.ask("written two.bin") == "1"
    assert board.ask("written one.bin") == "0"


@pytest.mark.root
@pytest.mark.parametrize("way", ["open('{0}', 'r+').write('new')", "os.unlink('{0}')"])
def test_write_through_a_bind_mount_is_seen(board: Board, way: str) -> None:
    bound = board.folder / "bound"
    bound.mkdir()
    subprocess.run(["mount", "--bind", board.root, bound], check=True)
    try:
        board.start()
        board.ask("publish two.bin")
        python(board, "import os; " + way.format(bound / "two.bin"))
    finally:
        subprocess.run(["umount", bound], check=True)

    assert board.ask("written two.bin") == "1"
    assert board.ask("root") == "0"


@pytest.mark.parametrize("place", ["{0}", "{0}/../{1}", "/proc/self/cwd"])
def test_link_above_a_root_that_is_replaced_is_followed_anew(
    board: Board, place: str
) -> None:
    (board.folder / "above").symlink_to(board.folder)
    other = board.folder / "newer" / board.root.name
    other.mkdir(parents=True)
    (other / "two.bin").write_text("newer")
    path = board.folder / "above" / board.root.name / "two.bin"
    board.start("-a", str(path.parent))
    board.ask("publish two.bin")
    here = place.format(board.folder, board.folder.name)

    shown = python(
        board,
        f"import os; os.chdir('{board.folder}'); print(open('{path}').read(3))\n"
        "os.symlink('newer', 'new')\n"
        f"os.rename('new', os.path.relpath('{here}/above'))\n"
        f"print(open('{path}').read(5))",
    )

    assert shown == "two\nnewer\n"


def test_file_of_the_program_with_a_lost_replicas_inode_is_itself(
    board: Board,
) -> None:
    board.start()
    board.ask("publish two.bin")
    replica = Path(board.ask("where two.bin"))
    mode = (board.root / "two.bin").stat().st_mode
    # As if the Tier's file system had reused the inode: same number, other file.
    replica.chmod(0o644)
    replica.write_text("a stranger")

    shown = python(
        board,
        f"import os; f = os.open('{replica}', os.O_RDONLY)\n"
        "print(os.fstat(f).st_size); os.fchmod(f, 0o600)",
    )

    assert shown == "10\n"
    assert replica.stat().st_mode & 0o777 == 0o600
    assert (board.root / "two.bin").stat().st_mode == mode


@pytest.mark.root
def test_link_to_a_descriptor_itself_is_one_to_the_origins_file(board: Board) -> None:
    board.start()
    board.ask("publish two.bin")
    path = board.root / "two.bin"

    python(
        board,
        f"import ctypes; f = open('{path}')\n"
        f"ctypes.CDLL(None).linkat(f.fileno(), b'', -100, b'{board.root}/linked', "
        f"{AT_EMPTY_PATH})",
    )

    assert (board.root / "linked").samefile(path)


@pytest.mark.parametrize("other", ["", "libm.so.6"])
def test_program_that_outlives_the_job_starts_others_in_silence(
    board: Board, other: str
) -> None:
    board.start()
    environment = board.environ()
    environment["LD_PRELOAD"] += f":{other}" if other else ""
    script = (
        "import os, subprocess\n"
        f"os.unlink('{board.run_dir}/shim.so')\n"
        "subprocess.run(['/bin/env'])\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True
    )

    assert done.stderr == ""
    preloads = [
        line for line in done.stdout.splitlines() if line.startswith("LD_PRELOAD=")
    ]
    assert preloads == ([f"LD_PRELOAD={other}"] if other else [])


@pytest.mark.root
def test_program_started_as_another_user_prints_nothing_about_the_shim(
    board: Board,
) -> None:
    board.folder.chmod(0o711)
    board.start()
    script = (
        f"import os; os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "os.execv('/bin/env', ['env'])\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script],
        env=board.environ(),
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "LD_PRELOAD" not in done.stdout


@pytest.mark.root
@pytest.mark.parametrize("other", ["", "libm.so.6"])
def test_program_without_the_shim_in_reach_uses_the_shell_in_silence(
    board: Board, other: str
) -> None:
    board.folder.chmod(0o711)
    board.start()
    environment = board.environ()
    environment["LD_PRELOAD"] += f":{other}" if other else ""
    script = (
        f"import os; os.setgid({NOBODY}); os.setuid({NOBODY})\nos.system('/bin/env')\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True
    )

    assert done.stderr == ""
    assert (f"LD_PRELOAD={other}" in done.stdout.splitlines()) == bool(other)
    assert f"{board.run_dir}/shim.so" not in done.stdout


@pytest.mark.root
def test_program_in_another_root_uses_the_shell_in_silence(board: Board) -> None:
    board.start()
    jail = board.folder / "jail"
    jail.mkdir()
    program = f"import os; os.chroot('{jail}'); print(os.system('cat /etc/hostname'))"
    script = (
        f"mount --bind / {jail}; mount -t tmpfs none {jail}{board.folder}; "
        f'mount -t tmpfs none {jail}/{board.folder}; exec {sys.executable} -c "$0"'
    )

    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, program],
        env=board.environ(),
        capture_output=True,
        text=True,
    )

    assert (done.stdout[-2:], done.stderr) == ("0\n", "")


def test_thread_with_a_small_stack_starts_programs(
    board: Board, compiled: Compile
) -> None:
    board.start()
    program = compiled("small_stack.c", "-pthread")

    assert board.run(program) == "exec 0\nspawn 0\n"


@pytest.mark.root
@pytest.mark.parametrize("proc", [[], ["--mount-proc"]])
def test_process_in_another_pid_namespace_is_not_taken_for_a_stranger(
    board: Board, proc: list[str]
) -> None:
    board.start()
    board.ask("publish two.bin")
    inner = f"cat {board.root}/two.bin; (echo $$; cat {board.root}/two.bin); true"

    board.run("unshare", "--pid", "--fork", *proc, "sh", "-c", inner)

    assert 1 not in [pid for pid, _, _ in board.processes()]
    if not proc:  # a private mount namespace disables the Shim
        assert board.counters()["opens_hit_tier0"] == 2


def test_change_through_a_descriptor_never_hits_the_file_that_took_its_name(
    board: Board,
) -> None:
    board.start()
    board.ask("publish-all")
    path, other = board.root / "two.bin", board.folder / "other"
    gone = board.root / "a" / "b" / "three.bin"
    other.touch(0o640)

    shown = python(
        board,
        f"import os; f = os.open('{path}', os.O_RDONLY)\n"
        f"os.replace('{other}', '{path}')\n"
        "try: os.fchmod(f, 0o600)\n"
        "except OSError as error: print(error.errno)\n"
        f"g = os.open('{gone}', os.O_RDONLY)\n"
        f"os.unlink('{gone}'); print(os.listxattr(g))",
    )

    assert shown == f"{errno.ESTALE}\n[]\n"
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.root
def test_write_through_a_link_to_an_overlay_is_seen(board: Board) -> None:
    upper, lower = board.folder / "upper", board.folder / "lower"
    upper.mkdir()
    board.root.rename(lower)
    board.root.mkdir()
    (board.folder / "link").symlink_to(board.root)
    subprocess.run(["mount", "-t", "tmpfs", "none", upper], check=True)
    try:
        (upper / "u").mkdir()
        (upper / "w").mkdir()
        layers = f"lowerdir={lower},upperdir={upper}/u,workdir={upper}/w"
        overlay = ["mount", "-t", "overlay", "none", "-o", layers, str(board.root)]
        subprocess.run(overlay, check=True)
        try:
            board.start()
            python(board, f"open('{board.folder}/link/two.bin', 'r+').write('new')")
        finally:
            subprocess.run(["umount", board.root], check=True)
    finally:
        subprocess.run(["umount", upper], check=True)

    assert board.ask("written two.bin") == "1"


def least_stack(words: list[str], env: dict[str, str] | None) -> int:
    """The smallest signal stack, in steps of 64 bytes, on which a program survives."""
    low, high = 2048, 32768
    while high - low > 64:
        middle = (low + high) // 128 * 64
        command = [middle_word.format(middle) for middle_word in words]
        done = subprocess.run(command, env=env, capture_output=True)
        low, high = (low, middle) if done.returncode == 0 else (middle, high)
    return high


@pytest.mark.parametrize(
    "call", ["open", "relative", "write", "stat", "unlink", "rename", "chmod"]
)
def test_signal_handler_needs_at_most_a_kilobyte_more_stack(
    board: Board, compiled: Compile, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = compiled("least_stack.c")
    monkeypatch.chdir(board.root)
    words = [str(program), call, "{}", str(board.root / "two.bin")]
    plain = least_stack(words, None)
    board.start()
    board.ask("publish-all")

    found = least_stack(words, board.environ())

    assert found <= plain + 1024, (plain, found)


@pytest.mark.root
def test_a_retained_copy_is_recognised_by_its_identity_not_by_its_content(
    tmp_path: Path, run_root: Path, monarch_command: Path, tool: Callable[[str], str]
) -> None:
    """The fine print on another image with the same inodes and times."""
    mounted, tier = tmp_path / "mounted", tmp_path / "tier"
    mounted.mkdir()
    tier.mkdir()
    shown = []
    for content in ("first", "other"):
        image = make_image(tmp_path, content, tool)
        subprocess.run(["mount", "-o", "loop,ro", image, mounted], check=True)
        try:
            run = [str(monarch_command), "run", "-q", "--data", str(mounted)]
            run += ["--tier", f"ssd:8MiB:{tier}", "--set", "retain=node"]
            run += ["--set", "cold_open.mode=wait", "--", "cat", f"{mounted}/file"]
            done = subprocess.run(run, capture_output=True, text=True, check=True)
        finally:
            subprocess.run(["umount", mounted], check=True)
        shown.append(done.stdout)

    assert shown == ["first", "first"]


def make_image(folder: Path, content: str, tool: Callable[[str], str]) -> Path:
    """An ext4 image of one file, whose times are those of every other one."""
    source, image = folder / content, folder / f"{content}.img"
    source.mkdir()
    (source / "file").write_text(content)
    make = [tool("mkfs.ext4"), "-q", "-d", str(source), str(image), "4M"]
    subprocess.run(make, check=True)
    for field in ("mtime", "ctime", "crtime"):
        for name, value in ((field, "20200101"), (f"{field}_extra", "0")):
            order = f"set_inode_field file {name} {value}"
            words = [tool("debugfs"), "-w", "-R", order, str(image)]
            subprocess.run(words, check=True, capture_output=True)
    return image
