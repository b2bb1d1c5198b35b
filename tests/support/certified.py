"""Self-certifying files: each begins with a digest of its name and its bytes.

Also a program, of the standard library alone: `certified.py ROOT EPOCHS WORKERS [STOP]`
reads all files EPOCHS times in random orders, or until the file STOP exists, and ends
with 1 if any of them was not right.
"""

import hashlib
import os
import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

HEAD_BYTES = 16


def head_of(name: str, body: bytes) -> bytes:
    """The digest that a file of this name and body begins with."""
    return hashlib.blake2b(name.encode() + body, digest_size=HEAD_BYTES).digest()


def make_certified(root: Path, files: int, mean_bytes: int, seed: int = 1) -> int:
    """Write files around a mean size and return their total size in bytes."""
    rng = random.Random(seed)
    drawn = (rng.randrange(mean_bytes // 2, mean_bytes * 3 // 2) for _ in range(files))
    return make_sized(root, (HEAD_BYTES + size for size in drawn), rng)


def make_sized(root: Path, sizes: Iterable[int], rng: random.Random) -> int:
    """Write files of these sizes in bytes, and return their total size."""
    total = 0
    for i, size in enumerate(sizes):
        name = f"class{i % 5}/part{i:05d}"
        body = rng.randbytes(size - HEAD_BYTES)
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(head_of(name, body) + body)
        total += size
    return total


def fill_anew(root: Path, body: Callable[[int, int], bytes]) -> None:
    """Give each file other bytes, of the same size: its body is body(size, number)."""
    for number, path in enumerate(sorted(root.rglob("part*"))):
        content = body(path.stat().st_size - HEAD_BYTES, number)
        path.write_bytes(head_of(str(path.relative_to(root)), content) + content)


def hex_digits(size: int, number: int) -> bytes:
    """Bytes that shrink to a half."""
    return random.Random(number).randbytes(size // 2 + 1).hex().encode()[:size]


def is_right(root: Path, name: str) -> bool:
    """Whether a file reads as it was written."""
    content = (root / name).read_bytes()
    return content[:HEAD_BYTES] == head_of(name, content[HEAD_BYTES:])


def read_all(root: Path, epochs: int, stop: Path | None, seed: int) -> int:
    """Read every file in each epoch and return how many were wrong."""
    names = sorted(str(p.relative_to(root)) for p in root.rglob("part*"))
    order = random.Random(seed)
    wrong = done = 0
    while not (stop.exists() if stop else done >= epochs):
        order.shuffle(names)
        for name in names:
            if not is_right(root, name):
                print(f"wrong bytes: {name}", flush=True)
                wrong += 1
        done += 1
    return wrong


def main() -> int:
    """Read with several processes; the exit status is 0 if all was right."""
    root, epochs, workers = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    stop = Path(sys.argv[4]) if len(sys.argv) > 4 else None
    children = []
    for worker in range(workers):
        pid = os.fork()
        if pid == 0:
            os._exit(min(read_all(root, epochs, stop, worker), 1))
        children.append(pid)
    ends = [os.waitpid(pid, 0)[1] for pid in children]
    return 1 if any(ends) else 0


if __name__ == "__main__":
    sys.exit(main())
