"""Datasets as the tools that manage them lay them out: links to stored files."""

import hashlib
import json
import os
import subprocess
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from support.clusters import Cluster
from support.nodes import Node, Outcome, Plan
from support.processes import wait_until

OVERREAD_MAX = 1.02
DATASET = "dataset"
REVISION = hashlib.sha1(b"a revision").hexdigest()
ANNEX_DIGITS = "0123456789zqjxkmvwgpfZQJXKMVWGPF"

Layout = Callable[[Path], Path]
"""Turns a directory of files into the layout, beside it; returns the dataset in it."""


def files_of(source: Path) -> list[Path]:
    """All files below a directory, in order."""
    return sorted(path for path in source.rglob("*") if path.is_file())


def annexed(source: Path) -> Path:
    """git-annex, locked files: links to read-only objects in directories of their own.

    See "internals" in git-annex's manual: .git/annex/objects/XX/YY/KEY/KEY.
    """
    root = source / DATASET
    for path in [one for one in files_of(source) if root not in one.parents]:
        key = annex_key(path)
        folder = root / ".git" / "annex" / "objects" / annex_folder(key) / key
        store(path, folder / key, root / path.relative_to(source))
        (folder / key).chmod(0o444)
        folder.chmod(0o555)
    return root


def annex_key(path: Path) -> str:
    """The default key of git-annex for a file, with the last two suffixes."""
    content = path.read_bytes()
    suffixes = "".join(path.suffixes[-2:])
    return f"SHA256E-s{len(content)}--{hashlib.sha256(content).hexdigest()}{suffixes}"


def annex_folder(key: str) -> Path:
    """The two directories of a key, from the first four bytes of its MD5.

    See "internals/hashing" in git-annex's manual, "old hash format".
    """
    word = int.from_bytes(hashlib.md5(key.encode()).digest()[:4], "little")
    digits = [ANNEX_DIGITS[word >> shift & 31] for shift in (6, 0, 18, 12)]
    return Path("".join(digits[:2]), "".join(digits[2:]))


def in_dvc_cache(source: Path) -> Path:
    """DVC, `cache.type symlink`: absolute links to a cache by MD5 of the content."""
    root, cache = source / DATASET, source / "dvc-cache" / "files" / "md5"
    for path in files_of(source):
        digest = hashlib.md5(path.read_bytes()).hexdigest()
        place = cache / digest[:2] / digest[2:]
        store(path, place, root / path.relative_to(source), absolute=True)
        place.chmod(0o444)
    return root


def in_hub_cache(source: Path) -> Path:
    """The cache of huggingface_hub: links of a snapshot to blobs by their ETag."""
    repository = source / "hub" / "datasets--someone--images"
    root = repository / "snapshots" / REVISION
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(REVISION)
    for path in files_of(source):
        if repository in path.parents:
            continue
        blob = repository / "blobs" / hashlib.sha256(path.read_bytes()).hexdigest()
        store(path, blob, root / path.relative_to(source))
    return root


def linked_classes(source: Path) -> Path:
    """A subset of ImageNet by hand: each class is a link to a shared directory."""
    root, shared = source / DATASET, source / "shared" / uuid.UUID(int=1).hex
    shared.mkdir(parents=True)
    root.mkdir()
    folders = {path.parent for path in files_of(source)}
    for folder in sorted(folders):
        folder.rename(shared / folder.name)
        (root / folder.name).symlink_to(shared / folder.name)
    return root


LAYOUTS: tuple[Layout, ...] = (annexed, in_dvc_cache, in_hub_cache, linked_classes)


def store(path: Path, place: Path, link: Path, *, absolute: bool = False) -> None:
    """Moves a file to its place, once for equal content, and makes a link to it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    if place.exists():
        path.unlink()
    else:
        path.rename(place)
    link.symlink_to(place if absolute else os.path.relpath(place, link.parent))


def laid_out(cluster: Cluster, layout: Layout) -> Cluster:
    """The cluster with its dataset in a layout; absolute links lead into the origin."""
    source, root = cluster.origin.source, cluster.origin.root
    dataset = layout(source)
    for link in [path for path in source.rglob("*") if path.is_symlink()]:
        goal = os.readlink(link)
        if goal.startswith(str(source)):
            link.unlink()
            link.symlink_to(root / Path(goal).relative_to(source))
    return replace(cluster, linked=root / dataset.relative_to(source))


def read_twice(cluster: Cluster) -> Outcome:
    """Two epochs on all nodes: the origin is read in the first one alone, and once."""
    nodes, files = len(cluster.nodes), len(cluster.sizes)
    job = cluster.start(Plan(2), hold=[1])
    job.await_epoch(1)
    # Fill may still be copying files that the tool keeps beside the others.
    wait_until(lambda: all(has_staged_all(cluster, n) for n in cluster.nodes), "fill")
    first = cluster.origin.counts()
    job.release(1)
    outcome = job.finish().right(opens=2 * nodes * files)
    counts = cluster.origin.counts()
    dataset_bytes = outcome.report["run"]["bytes"]  # including the tool's own files
    assert cluster.size_bytes <= dataset_bytes <= counts.read_bytes
    assert counts.read_bytes <= OVERREAD_MAX * dataset_bytes
    assert (counts.opens, counts.read_bytes) == (first.opens, first.read_bytes)
    assert (counts.stats, counts.readlinks) == (first.stats, first.readlinks)
    assert not any(one.at_origin for one in outcome.opens)
    report = outcome.report
    assert report["headline"]["opens"] == len(outcome.opens)
    assert report["headline"]["origin_opens"] == 0
    assert not any("warning" in words for words in outcome.said.values())
    return outcome


def has_staged_all(cluster: Cluster, node: Node) -> bool:
    """Whether a node has all files that it is to keep."""
    words = [str(cluster.command), "status", "--json"]
    done = subprocess.run(words, env=node.environ, capture_output=True, check=True)
    staged = json.loads(done.stdout)["staged"]
    return bool(staged["files"] == staged["kept_files"])
