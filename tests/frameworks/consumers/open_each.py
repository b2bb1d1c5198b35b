"""Opens and reads each path in a file of JSON lines; failures are ignored.

Each line: [directory to be in, directory to be relative to or null, path, flags].
"""

import json
import os
import sys


def main() -> None:
    """Opens each path in the order of the lines."""
    with open(sys.argv[1], encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    for place, relative_to, path, flags in lines:
        try:
            open_one(place, relative_to, path, flags)
        except OSError:
            continue


def open_one(place: str, relative_to: str | None, path: str, flags: int) -> None:
    """Opens and reads one path."""
    os.chdir(place)
    directory = None if relative_to is None else os.open(relative_to, os.O_PATH)
    try:
        fd = os.open(path, flags, 0o600, dir_fd=directory)
        try:
            os.read(fd, 1 << 20)
        finally:
            os.close(fd)
    finally:
        if directory is not None:
            os.close(directory)


main()
