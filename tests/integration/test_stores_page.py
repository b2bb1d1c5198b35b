"""The page on stores: its examples run as they are."""

import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from monarch.records.stores.address import PORTS, StoreAddress
from support.redis_servers import Redis, redis_server

pytest.importorskip("redis")
PAGE = (files("monarch") / "pages" / "stores.md").read_text()
CHANCE = random.Random(12)


def examples(word: str) -> list[str]:
    """The indented blocks of the page that have a word in them."""
    found = re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", PAGE, re.MULTILINE)
    texts = ["\n".join(line[4:] for line in one.splitlines()) for one in found]
    return [text.strip() for text in texts if word in text]


@pytest.fixture
def server(tmp_path: Path, tool: Callable[[str], str]) -> Iterator[Redis]:
    """A Redis with a folder of images beside it."""
    tool("redis-server")
    for split in ("train", "val"):
        for label in ("cat", "lynx"):
            folder = tmp_path / "images" / split / label
            folder.mkdir(parents=True)
            for number in range(20):
                (folder / f"{number}.jpg").write_bytes(CHANCE.randbytes(300))
    with redis_server(tmp_path / "redis") as one:
        yield one


def run(words: list[str], folder: Path) -> str:
    """What a command prints."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_examples_run_as_they_are(server: Redis, tmp_path: Path) -> None:
    [commands] = examples("monarch records ingest")
    [reads] = examples("Loader(train, 256")
    [chooses] = examples("records.split(")
    [keeps] = examples("--keep")
    place = f"127.0.0.1:{server.port}"

    said = run(["sh", "-euc", commands.replace("HOST:6379", place)], tmp_path)
    assert "wrote 80 records" in said
    assert "redis: 80 records" in said

    # The database holds the index and the ingest mark beside the records.
    said = run(["sh", "-euc", keeps.replace("HOST:6379", place)], tmp_path)
    assert "the index is kept; open it as" in said
    assert said.count("redis: 80 records") == 2

    program = f"{reads}\n    print(len(batch))\n{chooses}\n"
    program += "print(len(parts['val']), len(cats), len(even))\nrecords.close()\n"
    program = program.replace("HOST:6379", place).replace("imagenet", "images")
    program = program.replace("256", "8")
    said = run([sys.executable, "-P", "-c", program], tmp_path)
    assert said.split() == ["8"] * 5 + ["8", "80", "80"]


def test_each_address_of_the_page_is_valid_and_no_scheme_is_missing() -> None:
    table = PAGE.partition("## Addresses\n")[2].partition("\n## ")[0]
    addresses = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(addresses) == 9
    for text in addresses:
        plain = text.replace(":PORT", "").replace("/DB", "/0")
        assert StoreAddress.parse(plain).hosts
    named = {text.partition("://")[0] for text in re.findall(r"\w+://", PAGE)}
    assert set(PORTS) - {"http"} <= named
