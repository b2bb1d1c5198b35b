"""Carries out seeded random file operations in a tree and prints each result."""

import errno
import glob
import hashlib
import mmap
import os
import random
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable

# Times before this moment were set by us; all others are "now" and not printed.
OLD_NS = 1_700_000_000 * 10**9
FOLDERS = ("", "a", "a/b", "c", "new", "a/new")
NAMES = ("f0", "f1", "f2", "f3", "g0", "g1", "link", "far", "up", "fresh")


class Walk:
    """One run of random operations; all choices come from the seed."""

    def __init__(self, seed: int, root: str) -> None:
        self.random = random.Random(seed)
        self.root = root

    def relative(self) -> str:
        """A name below the root, which may be there or not."""
        names = (self.random.choice(FOLDERS), self.random.choice(NAMES))
        return os.path.join(*names) if self.random.random() < 0.9 else names[0] or "c"

    def path(self) -> str:
        """One of many spellings of a random name."""
        name = self.relative()
        spellings = (
            os.path.join(self.root, name),
            os.path.join(self.root, name),
            name,
            "./" + name,
            os.path.join("a", "..", name),
            self.root + "//" + name,
            os.path.join(self.root, "c", ".", "..", name),
            f"/proc/self/cwd/{name}",
        )
        return self.random.choice(spellings)

    def payload(self) -> bytes:
        """Bytes to write."""
        return self.random.randbytes(self.random.randrange(3000))

    def chance(self, *values: int) -> int:
        """One of some numbers."""
        return self.random.choice(values)


def digest(content: bytes) -> str:
    """Length and digest of bytes, short enough to read in a difference."""
    return f"{len(content)}:{hashlib.sha256(content).hexdigest()[:8]}"


def shape(found: os.stat_result) -> str:
    """What a stat says, without what differs from run to run."""
    old = found.st_mtime_ns if found.st_mtime_ns < OLD_NS else "now"
    size = found.st_size if not stat.S_ISDIR(found.st_mode) else "-"
    return f"{found.st_mode:o} {found.st_nlink} {found.st_uid} {size} {old}"


def do_read(walk: Walk) -> str:
    with open(walk.path(), "rb") as file:
        return digest(file.read())


def do_read_pieces(walk: Walk) -> str:
    descriptor = os.open(walk.path(), os.O_RDONLY | walk.chance(0, os.O_NOFOLLOW))
    try:
        pieces = [os.pread(descriptor, 700, at) for at in (0, 500, 5000)]
        os.lseek(descriptor, -3, os.SEEK_END)
        return digest(b"".join(pieces) + os.read(descriptor, 9)) + shape(
            os.fstat(descriptor)
        )
    finally:
        os.close(descriptor)


def do_read_map(walk: Walk) -> str:
    with (
        open(walk.path(), "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view,
    ):
        return digest(view[:])


def do_read_dir_fd(walk: Walk) -> str:
    folder = os.open(walk.random.choice(FOLDERS) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        name = walk.random.choice(NAMES)
        found = os.stat(name, dir_fd=folder, follow_symlinks=walk.chance(0, 1) == 1)
        with open(os.open(name, os.O_RDONLY, dir_fd=folder), "rb") as file:
            return shape(found) + digest(file.read())
    finally:
        os.close(folder)


def do_read_by_cat(walk: Walk) -> str:
    done = subprocess.run(
        ["cat", walk.path()], capture_output=True, env={}, check=False
    )
    return f"{done.returncode} {digest(done.stdout)}"


def do_read_in_child(walk: Walk) -> str:
    path = walk.path()
    output, input_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with open(path, "rb") as file:
                os.write(input_end, digest(file.read()).encode())
        except OSError as error:
            os.write(input_end, errno.errorcode[error.errno or 0].encode())
        os._exit(0)
    os.close(input_end)
    os.waitpid(child, 0)
    with open(output, "rb") as file:
        return file.read().decode()


def do_stat(walk: Walk) -> str:
    return shape(os.stat(walk.path()))


def do_lstat(walk: Walk) -> str:
    return shape(os.lstat(walk.path()))


def do_access(walk: Walk) -> str:
    path = walk.path()
    modes = (os.F_OK, os.R_OK, os.W_OK, os.X_OK)
    return f"{[os.access(path, mode) for mode in modes]} {os.path.exists(path)}"


def do_resolve(walk: Walk) -> str:
    return os.path.relpath(os.path.realpath(walk.path()), walk.root)


def do_readlink(walk: Walk) -> str:
    return os.readlink(walk.path())


def do_list(walk: Walk) -> str:
    with os.scandir(walk.random.choice(FOLDERS) or ".") as entries:
        return str(
            sorted((e.name, shape(e.stat(follow_symlinks=False))) for e in entries)
        )


def do_glob(walk: Walk) -> str:
    return str(sorted(glob.glob("*/*/f*", root_dir=walk.root)))


def do_list_attributes(walk: Walk) -> str:
    path = walk.path()
    with open(path, "rb") as file:
        return str([sorted(os.listxattr(path)), sorted(os.listxattr(file.fileno()))])


def do_write(walk: Walk) -> str:
    flags = walk.chance(os.O_WRONLY, os.O_RDWR) | walk.chance(0, os.O_CREAT)
    flags |= walk.chance(0, os.O_TRUNC, os.O_APPEND, os.O_EXCL)
    descriptor = os.open(walk.path(), flags, 0o640)
    try:
        return str(os.write(descriptor, walk.payload()))
    finally:
        os.close(descriptor)


def do_write_by_open(walk: Walk) -> str:
    with open(walk.path(), walk.random.choice(("wb", "ab", "r+b", "xb"))) as file:
        return str(file.write(walk.payload()))


def do_open_and_leave(walk: Walk) -> str:
    with open(walk.path(), "r+b") as file:
        return digest(file.read())


def do_write_by_shell(walk: Walk) -> str:
    words = ["sh", "-c", 'printf more >>"$0"', walk.path()]
    return str(subprocess.run(words, capture_output=True, check=False).returncode)


def do_truncate(walk: Walk) -> str:
    os.truncate(walk.path(), walk.chance(0, 10, 4000))
    return "done"


def do_rename(walk: Walk) -> str:
    os.rename(walk.path(), walk.path())
    return "done"


def do_rename_dir_fd(walk: Walk) -> str:
    folder = os.open("a", os.O_RDONLY | os.O_DIRECTORY)
    try:
        names = walk.random.sample(NAMES, 2)
        os.rename(*names, src_dir_fd=folder, dst_dir_fd=folder)
        return "done"
    finally:
        os.close(folder)


def do_link(walk: Walk) -> str:
    os.link(walk.path(), walk.path(), follow_symlinks=walk.chance(0, 1) == 1)
    return "done"


def do_symlink(walk: Walk) -> str:
    os.symlink(
        walk.random.choice(("f0", "../f1", "nowhere", walk.root + "/c/f2")), walk.path()
    )
    return "done"


def do_unlink(walk: Walk) -> str:
    os.unlink(walk.path())
    return "done"


def do_make_folder(walk: Walk) -> str:
    os.mkdir(walk.path())
    return "done"


def do_remove_folder(walk: Walk) -> str:
    os.rmdir(walk.path())
    return "done"


def do_chmod(walk: Walk) -> str:
    os.chmod(walk.path(), walk.chance(0o600, 0o644, 0o755, 0o000, 0o200))
    return "done"


def do_chmod_descriptor(walk: Walk) -> str:
    with open(walk.path(), "rb") as file:
        os.fchmod(file.fileno(), walk.chance(0o640, 0o700))
        return shape(os.fstat(file.fileno()))


def do_set_times(walk: Walk) -> str:
    seconds = walk.random.randrange(1_500_000_000, 1_600_000_000)
    os.utime(walk.path(), (seconds, seconds), follow_symlinks=walk.chance(0, 1) == 1)
    return "done"


def do_set_times_descriptor(walk: Walk) -> str:
    with open(walk.path(), "rb") as file:
        os.utime(file.fileno(), (1_555_555_555, walk.random.randrange(1_600_000_000)))
        return shape(os.fstat(file.fileno()))


def do_set_attribute(walk: Walk) -> str:
    path = walk.path()
    os.setxattr(path, "user.mark", walk.payload()[:20])
    with open(path, "rb") as file:
        return digest(os.getxattr(file.fileno(), "user.mark"))


def do_copy(walk: Walk) -> str:
    return digest(os.fsencode(shutil.copy2(walk.path(), walk.path())))


def do_copy_range(walk: Walk) -> str:
    with open(walk.path(), "rb") as source, open(walk.path(), "r+b") as target:
        return str(os.copy_file_range(source.fileno(), target.fileno(), 2000))


def do_move(walk: Walk) -> str:
    shutil.move(walk.path(), walk.path())
    return "done"


def do_replace(walk: Walk) -> str:
    fresh = walk.path() + ".tmp"
    with open(fresh, "wb") as file:
        file.write(walk.payload())
    os.replace(fresh, walk.path())
    return "done"


Operation = Callable[[Walk], str]
ALL: dict[str, Operation] = {
    name: value for name, value in sorted(globals().items()) if name.startswith("do_")
}
READING = [
    *(do_read, do_read_pieces, do_read_map, do_read_dir_fd, do_read_by_cat),
    *(do_read_in_child, do_stat, do_lstat, do_access, do_resolve, do_readlink),
    *(do_list, do_glob, do_list_attributes),
]
CHANGING = [value for value in ALL.values() if value not in READING]


def make(root: str) -> None:
    """Fills a directory with what the operations work on."""
    content = random.Random(0)
    for folder in ("", "a", "a/b", "c"):
        os.makedirs(os.path.join(root, folder), exist_ok=True)
        for name in NAMES[:6]:
            path = os.path.join(root, folder, name)
            with open(path, "wb") as file:
                file.write(content.randbytes(content.randrange(6000)))
            os.utime(path, (1_400_000_000, content.randrange(1_500_000_000)))
    os.symlink("f0", os.path.join(root, "link"))
    os.symlink("../c/f1", os.path.join(root, "a", "far"))
    os.symlink("..", os.path.join(root, "c", "up"))
    os.link(os.path.join(root, "f2"), os.path.join(root, "c", "link"))


def run(seed: int, steps: int, root: str) -> None:
    """Prints one line per operation."""
    walk = Walk(seed, root)
    changing = walk.random.choice((0.05, 0.2, 0.5))
    os.chdir(root)
    for step in range(steps):
        pool = CHANGING if walk.random.random() < changing else READING
        operation = walk.random.choice(pool)
        # What an operation draws may depend on how far it came; its seed may not.
        walk_here = Walk(walk.random.randrange(1 << 30), root)
        try:
            result = operation(walk_here)
        except (OSError, ValueError, RecursionError) as error:
            number = getattr(error, "errno", None)
            result = errno.errorcode[number] if number else type(error).__name__
        print(step, operation.__name__, result)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2])
    else:
        run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
