"""Every interposed function works: each is called by name."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from support.shim_fixtures import NATIVE, Board

HOOKS = re.findall(
    r"^HOOK\([^,]*,\s*(\w+),", (NATIVE / "shim/base/hooks.def").read_text(), re.M
)
OPENS = [
    *("open", "open64", "openat", "openat64", "__open", "__open64"),
    *("__open_2", "__open64_2", "__openat_2", "__openat64_2", "fopen", "fopen64"),
    *("_IO_fopen", "freopen", "freopen64"),
]
CREATS = ["creat", "creat64"]
STATS = [
    *("stat", "stat64", "lstat", "lstat64", "fstatat", "fstatat64", "statx"),
    *("__xstat", "__xstat64", "__lxstat", "__lxstat64"),
    *("__fxstatat", "__fxstatat64"),
]
FSTATS = ["fstat", "fstat64", "__fxstat", "__fxstat64"]
ACCESS = ["access", "faccessat", "eaccess", "euidaccess"]
FILE_CHANGES = [
    *("chmod", "lchmod", "fchmod", "fchmodat", "chown", "lchown", "fchown", "fchownat"),
    *("truncate", "truncate64", "utime", "utimes", "lutimes", "futimes", "futimens"),
    *("futimesat", "utimensat", "setxattr", "lsetxattr", "fsetxattr", "removexattr"),
    *("lremovexattr", "fremovexattr", "rename", "renameat", "renameat2", "unlink"),
    *("unlinkat", "remove", "link", "linkat"),
]
CREATIONS = [
    *("mkdir", "mkdirat", "mkfifo", "mkfifoat", "mknod", "mknodat", "__xmknod"),
    *("__xmknodat", "symlink", "symlinkat"),
]
XATTR_READS = ["fgetxattr", "flistxattr"]
MOUNTS = ["mount", "umount", "umount2", "move_mount"]
EXECS = [
    *("execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "fexecve"),
    *("execveat", "posix_spawn", "posix_spawnp"),
]
LEAVES = ["chroot", "unshare", "setns"]
IDENTITIES = ["setuid", "seteuid", "setreuid", "setresuid", "setfsuid", "capset"]
GROUPS = [
    *("setgid", "setegid", "setregid", "setresgid", "setfsgid", "setgroups"),
    "initgroups",
]
DIRECTORIES = [
    *("opendir", "fdopendir", "closedir", "rewinddir", "readdir", "readdir64"),
    *("readdir_r", "readdir64_r", "telldir", "seekdir"),
]
CHOSEN_NAMES = [
    *("mkstemp", "mkstemp64", "mkostemp", "mkostemp64", "mkstemps", "mkstemps64"),
    *("mkostemps", "mkostemps64", "mkdtemp", "bind"),
]
# Each has its own test, here or in test_written_marks.py and _elsewhere.py, and in
# test_directories.py and _changes.py.
OTHERS = [
    # In test_mappings.py and test_large_reads.py.
    *("mmap", "mmap64"),
    *("read", "__read_chk", "pread", "pread64", "__pread64", "__pread_chk"),
    *("__pread64_chk", "readv", "preadv", "preadv64", "preadv2", "preadv64v2"),
    *(*DIRECTORIES, *CHOSEN_NAMES),
    *("system", "popen", "wordexp", "ioctl"),
    *("rmdir", "copy_file_range", "pivot_root", "openat2", "open_by_handle_at"),
    "open_tree",
    *("pidfd_getfd", "shm_open", "posix_spawn_file_actions_addopen"),
    *("posix_spawn_file_actions_addchdir_np", "posix_spawn_file_actions_addfchdir_np"),
    *("posix_spawn_file_actions_init", "posix_spawn_file_actions_destroy"),
]


def call(board: Board, probe: Path, *words: str | Path) -> str:
    """Runs the probe; a function that this libc lacks skips the test."""
    command = [str(word) for word in (probe, *words)]
    done = subprocess.run(
        command,
        env=board.environ(),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    if done.returncode == 77:
        pytest.skip(f"libc has no {words[1]}")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_hook_is_called_by_a_test() -> None:
    tested = [*OPENS, *CREATS, *STATS, *FSTATS, *ACCESS, *FILE_CHANGES, *CREATIONS]
    tested += [*XATTR_READS, *MOUNTS, *EXECS, *LEAVES, *IDENTITIES, *GROUPS, *OTHERS]

    assert sorted(tested) == sorted(HOOKS)


def test_library_exports_the_hooks_and_nothing_else(shim_library: Path) -> None:
    listing = subprocess.check_output(
        ["nm", "-D", "--defined-only", shim_library], text=True
    )

    assert sorted(line.split()[-1] for line in listing.splitlines()) == sorted(HOOKS)


def test_library_loads_on_glibc_2_17(shim_library: Path) -> None:
    listing = subprocess.check_output(["objdump", "-T", shim_library], text=True)

    versions = {
        tuple(map(int, found.split(".")))
        for found in re.findall(r"GLIBC_([0-9.]+)", listing)
    }
    assert versions
    assert max(versions) <= (2, 17)


def test_library_needs_nothing_beside_libc(shim_library: Path) -> None:
    listing = subprocess.check_output(["readelf", "-d", shim_library], text=True)

    needed = set(re.findall(r"NEEDED.*\[(.+)\]", listing))
    assert needed == {"libc.so.6", "libdl.so.2"}


@pytest.mark.parametrize("name", OPENS)
def test_open_is_served_by_the_replica(staged: Board, probe: Path, name: str) -> None:
    link, text = call(staged, probe, "open", name, staged.root / "two.bin").split()

    assert Path(link).parent == staged.tier
    assert text == "two.b"
    assert staged.counters()["opens_hit_tier0"] == 1


@pytest.mark.parametrize("name", CREATS)
def test_creat_marks_and_reaches_the_origin(
    staged: Board, probe: Path, name: str
) -> None:
    link, _ = call(staged, probe, "open", name, staged.root / "two.bin").split()

    assert link == str(staged.root / "two.bin")
    assert staged.ask("written two.bin") == "1"


@pytest.mark.parametrize("name", STATS)
def test_stat_is_answered_from_the_catalog(
    board: Board, probe: Path, name: str
) -> None:
    path = board.root / "two.bin"
    before = path.stat()
    board.start()
    path.write_bytes(b"changed where nobody sees it")

    answer = [
        int(n, 8 if i == 2 else 10)
        for i, n in enumerate(call(board, probe, "stat", name, path).split())
    ]

    told = [before.st_dev, before.st_ino, before.st_mode, before.st_nlink]
    assert answer == [*told, before.st_size, before.st_mtime_ns]
    assert board.counters()["stats_answered"] == 1


@pytest.mark.parametrize("name", FSTATS)
def test_fstat_of_a_replica_shows_the_origin(
    board: Board, probe: Path, name: str
) -> None:
    path = board.root / "one.bin"
    before = path.stat()
    board.start()
    board.ask("publish one.bin")

    answer = call(board, probe, "stat", name, path).split()

    assert answer[:2] == [str(before.st_dev), str(before.st_ino)]
    assert answer[3:] == ["2", str(before.st_size), str(before.st_mtime_ns)]
    assert board.counters()["stats_descriptor"] == 1


@pytest.mark.parametrize("name", ACCESS)
def test_access_is_answered_from_the_catalog(
    board: Board, probe: Path, name: str
) -> None:
    board.start()
    (board.root / "two.bin").unlink()

    assert call(board, probe, "access", name, board.root / "two.bin") == "0"
    assert board.counters()["stats_answered"] == 1


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.root] * ("chown" in name))
        for name in FILE_CHANGES
    ],
)
def test_change_of_a_file_marks_it_and_reaches_the_origin(
    board: Board, probe: Path, name: str
) -> None:
    path = board.root / "two.bin"
    os.setxattr(path, "user.probe", b"old")
    before = path.stat()
    board.start()
    board.ask("publish two.bin")

    result = call(board, probe, "change", name, path)

    assert result == "0" or name == "lchmod"
    assert board.ask("written two.bin") == "1"
    assert board.ask("root") == "0"
    if name != "lchmod":
        assert not path.exists() or path.stat().st_ctime_ns != before.st_ctime_ns


@pytest.mark.parametrize("name", CREATIONS)
def test_creation_of_a_name_marks_its_directory(
    board: Board, probe: Path, name: str
) -> None:
    board.start()

    assert call(board, probe, "change", name, board.root / "a" / "new") == "0"

    assert board.ask("dirwritten a") == "1"
    assert board.ask("dirwritten a/b") == "0"
    assert board.ask("root") == "0"


@pytest.mark.parametrize("name", CREATIONS)
def test_creation_of_a_name_that_exists_changes_nothing(
    board: Board, probe: Path, name: str
) -> None:
    board.start()

    assert call(board, probe, "change", name, board.root / "a" / "b") == "-17"

    assert board.ask("root") == "0"
    assert board.counters()["mutations"] == 0


@pytest.mark.parametrize("name", XATTR_READS)
def test_xattr_of_a_redirected_descriptor_is_the_origins(
    board: Board, probe: Path, name: str
) -> None:
    os.setxattr(board.root / "two.bin", "user.probe", b"old")
    board.start()
    board.ask("publish two.bin")

    answer = call(board, probe, "change", name, board.root / "two.bin")

    assert answer.split()[0] == ("old" if name == "fgetxattr" else "user.probe")
    assert board.ask("written two.bin") == "0"


@pytest.mark.root
@pytest.mark.parametrize("name", MOUNTS)
def test_each_change_of_mounts_is_announced_to_all_processes(
    board: Board, probe: Path, name: str
) -> None:
    board.start()

    assert call(board, probe, "change", name, board.root / "a") == "0"

    assert (board.ask("mounts"), board.ask("root")) == ("1", "0")


@pytest.mark.parametrize("name", ["rename", "chmod", "chown", "setxattr"])
def test_change_of_a_directory_lets_its_root_pass(
    staged: Board, probe: Path, name: str
) -> None:
    call(staged, probe, "change", name, staged.root / "a")

    assert staged.ask("root") == "1"
    shown = call(staged, probe, "open", "open", staged.root / "two.bin")
    assert shown.startswith(str(staged.root / "two.bin"))


def test_rename_of_a_directory_above_lets_the_root_pass(
    staged: Board, probe: Path
) -> None:
    call(staged, probe, "change", "rename", staged.root.parent)
    staged.root.parent.with_name(f"{staged.root.parent.name}.new").rename(
        staged.root.parent
    )

    assert staged.ask("root") == "1"


def test_rmdir_that_fails_changes_nothing(board: Board, probe: Path) -> None:
    board.start()

    assert call(board, probe, "change", "rmdir", board.root / "a") == "-39"

    assert board.ask("root") == "0"


def test_rmdir_of_a_catalogued_directory_lets_its_root_pass(
    board: Board, probe: Path
) -> None:
    (board.root / "empty").mkdir()
    board.start()

    assert call(board, probe, "change", "rmdir", board.root / "empty") == "0"

    assert board.ask("root") == "1"


@pytest.mark.parametrize("name", EXECS)
def test_exec_puts_the_shim_back_into_an_empty_environment(
    board: Board, probe: Path, name: str
) -> None:
    board.start()

    shown = call(board, probe, "exec", name, probe)

    assert shown == str(board.run_dir / "shim.so")


@pytest.mark.root
@pytest.mark.parametrize("name", [*LEAVES, *IDENTITIES, *GROUPS])
def test_call_that_changes_view_or_rights_ends_the_shim_here(
    board: Board, probe: Path, name: str
) -> None:
    board.start()
    board.ask("publish two.bin")
    for folder in board.root.parents:
        if not folder.stat().st_mode & 0o001:
            folder.chmod(0o711)

    answer = call(board, probe, "leave", name, board.root / "two.bin").split()

    assert answer == ["0", str(board.root / "two.bin"), "two.b"]
    assert board.counters()["origin_lost"] == 0


def test_pivot_root_that_fails_changes_nothing(staged: Board, probe: Path) -> None:
    answer = call(staged, probe, "leave", "pivot_root", staged.root / "two.bin")

    assert answer.split()[0] == "-1"
    assert answer.split()[2] == "two.b"


def test_copy_file_range_from_a_replica_works_across_file_systems(
    staged: Board, probe: Path
) -> None:
    answer = call(staged, probe, "change", "copy_file_range", staged.root / "two.bin")

    assert answer == "2 3 4 2 twwo. 0"
