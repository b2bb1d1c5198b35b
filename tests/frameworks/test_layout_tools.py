"""Datasets laid out by the tools themselves: git-annex, DVC and huggingface_hub."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from support.clusters import Cluster
from support.layouts import (
    DATASET,
    REVISION,
    Layout,
    annexed,
    files_of,
    in_dvc_cache,
    in_hub_cache,
    laid_out,
    read_twice,
)

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]

NAME = "someone/images"
IDENTITY = ("-c", "user.name=tester", "-c", "user.email=tester@localhost")
DOWNLOAD = """
import sys, huggingface_hub
print(huggingface_hub.snapshot_download(sys.argv[1], repo_type="dataset"))
"""


def run(folder: Path, *words: str, **environ: str) -> str:
    """Runs a tool in a folder and returns its output."""
    found = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(folder), **environ}
    done = subprocess.run(
        words, cwd=folder, env=found, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def gathered(source: Path) -> Path:
    """The files of a directory, in a directory of it."""
    root = source / DATASET
    for path in files_of(source):
        place = root / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        path.rename(place)
    return root


def by_git_annex(source: Path) -> Path:
    """A repository of git-annex, its files locked."""
    root = gathered(source)
    run(root, "git", "init", "-q")
    run(root, "git", *IDENTITY, "annex", "init", "--quiet")
    run(root, "git", *IDENTITY, "annex", "add", "--quiet", ".")
    return root


def by_dvc(source: Path) -> Path:
    """A directory that DVC keeps in a cache outside of the workspace's `.dvc`."""
    root = gathered(source)
    dvc = (sys.executable, "-m", "dvc")
    quiet = {"DVC_NO_ANALYTICS": "1", "DVC_SITE_CACHE_DIR": str(source / "site")}
    run(source, "git", "init", "-q")
    run(source, *dvc, "init", "-q", **quiet)
    run(source, *dvc, "config", "cache.type", "symlink", **quiet)
    run(source, *dvc, "config", "cache.dir", str(source / "dvc-cache"), **quiet)
    run(source, *dvc, "add", "-q", root.name, **quiet)
    return root


class Hub(BaseHTTPRequestHandler):
    """The few answers of a hub that a download of one dataset asks for."""

    def __init__(self, folder: Path, *rest: object) -> None:
        self.folder = folder
        super().__init__(*rest)  # type: ignore[arg-type]

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_HEAD(self) -> None:
        """Tells of a file."""
        self.answer(send=False)

    def do_GET(self) -> None:
        """Tells of the dataset, or gives a file."""
        self.answer(send=True)

    def answer(self, *, send: bool) -> None:
        """Sends the list of files as JSON, or a file."""
        files = files_of(self.folder)
        names = [str(path.relative_to(self.folder)) for path in files]
        if "/tree/" in self.path:
            rows = [
                {"type": "file", "path": name, "size": path.stat().st_size, "oid": name}
                for name, path in zip(names, files, strict=True)
            ]
            self.reply(json.dumps(rows).encode(), send)
        elif self.path.startswith("/api/"):
            listed = [{"rfilename": name} for name in names]
            about = {"id": NAME, "sha": REVISION, "siblings": listed}
            self.reply(json.dumps(about).encode(), send)
        else:
            name = self.path.partition(f"/resolve/{REVISION}/")[2]
            self.reply((self.folder / name).read_bytes(), send)

    def reply(self, content: bytes, send: bool) -> None:
        """Sends one answer; the ETag of a file is its SHA-256, as for large files."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Repo-Commit", REVISION)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.end_headers()
        if send:
            self.wfile.write(content)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a hub on this machine, which has the files of a folder."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def by_huggingface_hub(source: Path) -> Path:
    """A snapshot in the cache of huggingface_hub."""
    files = source.parent / "hub-files"
    shutil.move(gathered(source), files)
    for folder in source.iterdir():
        shutil.rmtree(folder)
    with served(files) as address:
        place = {"HF_ENDPOINT": address, "HF_HOME": str(source / "hf")}
        words = run(source, sys.executable, "-c", DOWNLOAD, NAME, **place)
    return Path(words.splitlines()[-1])


TOOLS = [(by_git_annex, "git-annex"), (by_dvc, "git"), (by_huggingface_hub, "sh")]
FIXTURES = [annexed, in_dvc_cache, in_hub_cache]
NAMES = ("a/b/x.bin", "a/one.tar.gz", "a/c.jpeg", "plain")


def links_of(root: Path) -> dict[str, tuple[str, int, int]]:
    """The links of a dataset: target, and modes of the file and of its directory."""
    found = {}
    for link in (path for path in files_of(root) if path.is_symlink()):
        goal = link.readlink()
        target = goal.relative_to(root.parent) if goal.is_absolute() else goal
        stored = link.resolve()
        modes = stored.stat().st_mode, stored.parent.stat().st_mode
        found[str(link.relative_to(root))] = (str(target), *modes)
    return found


def some_files(folder: Path) -> Path:
    """Files with and without suffixes, two of them with the same bytes."""
    for name in (*NAMES, "again.bin"):
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(NAMES[0] if name == "again.bin" else name)
    return folder


@pytest.mark.parametrize(
    ("by_tool", "program", "fixture"),
    [(*one, fixture) for one, fixture in zip(TOOLS, FIXTURES, strict=True)],
)
def test_fixtures_make_the_links_that_the_tools_make(
    tool: Callable[[str], str],
    tmp_path: Path,
    by_tool: Layout,
    program: str,
    fixture: Layout,
) -> None:
    tool(program)

    made = links_of(by_tool(some_files(tmp_path / "tool" / "source")))

    assert set(made) == {*NAMES, "again.bin"}
    assert made == links_of(fixture(some_files(tmp_path / "fixture" / "source")))


@pytest.mark.parametrize(("layout", "program"), TOOLS)
@pytest.mark.parametrize("nodes", [1, 4])
def test_a_dataset_that_its_tool_has_laid_out_is_read_from_the_origin_once(
    make_cluster: Callable[..., Cluster],
    tool: Callable[[str], str],
    layout: Layout,
    program: str,
    nodes: int,
) -> None:
    tool(program)
    cluster = laid_out(make_cluster(nodes), layout)
    links = [path for path in files_of(cluster.root) if path.is_symlink()]
    assert {*cluster.sizes} <= {str(path.relative_to(cluster.root)) for path in links}

    read_twice(cluster)
