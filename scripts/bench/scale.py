"""What becomes of Monarch on 8 to 4,096 nodes: measured, simulated, and modelled.

Placement is the real code, timed. Failure is the real breaker in simulated time. Links,
the shape of the tree and what a handshake costs are a model: numbers of the command
line put into formulas, and marked as such.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass

import numpy as np
from silence import Silence, silence

from monarch.placement.hashing import FLAT_NODES_MAX, Rendezvous, Scores, row_keys

SAMPLE = 20_000
CATALOG_BYTES_PER_FILE = 115
CHUNK_BYTES = 4 << 20
DESCRIPTORS = 1024
BALANCE_MAX = 0.10
TRIALS_MAX = 10


@dataclass(frozen=True, slots=True)
class Placed:
    """What the placement of all Files on some nodes came to.

    Args:
        seconds: for the owners of all Files, on one core.
        flat_ns: for a File, without groups.
        lost: the share of Files that move when the worst node is lost.
    """

    seconds: float
    flat_ns: float
    least: float
    most: float
    lost: float


def place(nodes: int, files: int) -> Placed:
    """Time the real placement, and its flat form on a sample."""
    names = [f"node{number}" for number in range(nodes)]
    ranks = Rendezvous(names, [1] * nodes, digest=1)
    began = time.process_time()
    owners = ranks.best(np.arange(files))
    seconds = time.process_time() - began
    shares = np.bincount(owners, minlength=nodes)
    flat = Scores(list(range(nodes)), [1] * nodes)
    keys = row_keys(np.arange(SAMPLE), 1)
    began = time.process_time()
    flat.lowest(keys, np.arange(nodes))
    flat_ns = (time.process_time() - began) / SAMPLE * 1e9
    mean = files / nodes
    return Placed(
        seconds,
        flat_ns,
        shares.min() / mean,
        shares.max() / mean,
        shares.max() / files,
    )


def star_s(nodes: int, size: float, link: float) -> float:
    """Return the seconds in which one node sends a Catalog to all others."""
    return (nodes - 1) * size / link


def tree_s(nodes: int, size: float, link: float, fan_out: int) -> float:
    """Return the same if each node passes chunks on to `fan_out` others at once.

    A node's link carries every chunk `fan_out` times; the last level gets the last
    chunk as many chunk times later as there are levels.
    """
    if nodes == 1:
        return 0.0
    levels = math.ceil(math.log((nodes - 1) * (fan_out - 1) / fan_out + 1, fan_out))
    chunk = min(size, CHUNK_BYTES)
    return fan_out * (size + (max(1, levels) - 1) * chunk) / link


def table(title: str, head: list[str], rows: list[list[str]]) -> None:
    """Print a table in Markdown."""
    print(f"\n{title}\n\n| " + " | ".join(head) + " |")
    print("| " + " | ".join(["---:"] * len(head)) + " |")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def print_placement(found: dict[int, Placed], files: int) -> None:
    """Print what was measured of placement."""
    rows = []
    for nodes, placed in found.items():
        flat = f"{placed.flat_ns:,.0f}"
        rows.append(
            [
                *(f"{nodes:,}", f"{files / nodes:,.0f}"),
                f"{placed.least:.2f} to {placed.most:.2f}",
                f"{placed.seconds / files * 1e9:,.0f}",
                flat + (" (not used)" if nodes > FLAT_NODES_MAX else ""),
                f"{placed.seconds:.2f}",
                f"{placed.lost:.2%} (1/N {1 / nodes:.2%})",
            ]
        )
    head = ["nodes", "files/node", "share of the mean", "ns/file", "flat ns/file"]
    head += ["CPU s for all files", "moved by the worst loss"]
    table(f"Placement of {files:,} files, measured on one core:", head, rows)


def print_failure(found: dict[int, tuple[Silence, Silence]], rate: float) -> None:
    """Print what was simulated of a node that falls silent."""
    rows = [
        [
            f"{nodes:,}",
            *(f"{alone.late_opens:,}", f"{alone.closed_last_s:.0f} s"),
            *(f"{told.late_opens:,}", f"{told.closed_last_s:.1f} s"),
            *(f"{told.trials:,}", f"{told.trials_per_s:.1f}"),
        ]
        for nodes, (alone, told) in found.items()
    ]
    head = ["nodes", "late opens, each agent alone", "last breaker open after"]
    head += ["late opens, agents told", "last open after"]
    head += ["trials in 2 min", "trials/s at last"]
    what = f"One node falls silent, {rate:g} remote opens/s on each, 1 s time-out"
    table(f"{what}; real breaker, simulated time:", head, rows)


def print_model(sizes: list[int], options: argparse.Namespace) -> None:
    """Print what follows from the numbers of the command line."""
    size = options.files * CATALOG_BYTES_PER_FILE
    link = options.link * 1e9 / 8
    total = options.files * options.file_bytes
    rows = []
    for nodes in sizes:
        pair = options.files / nodes**2
        rows.append(
            [
                f"{nodes:,}",
                f"{star_s(nodes, size, link):.2f} s",
                f"{tree_s(nodes, size, link, options.fan_out):.2f} s",
                *(f"{nodes - 1:,}", f"{pair:,.2f}"),
                f"{2 * (nodes - 1) * options.handshake:.2f} s",
                f"{nodes * options.streams:,}",
                f"{total / nodes / 2**30:.2f} GiB",
            ]
        )
    head = ["nodes", "catalog, star", f"catalog, tree of {options.fan_out}"]
    head += ["connections/agent", "files/pair and epoch", "handshakes of an agent"]
    head += ["origin streams", "origin bytes again per loss"]
    table(
        f"MODEL, not measured: {options.link:g} Gbit/s links, a catalog of "
        f"{size / 2**20:,.0f} MiB (not compressed),\n{options.handshake * 1e3:g} ms "
        f"for a handshake, {options.streams} origin streams a node, sharded epochs:",
        head,
        rows,
    )
    print(
        f"\nThe origin gives {total / 2**30:,.0f} GiB once, at any number of nodes; "
        "direct, each epoch again."
    )


def print_verdict(
    sizes: list[int],
    placed: dict[int, Placed],
    failed: dict[int, tuple[Silence, Silence]],
    options: argparse.Namespace,
) -> None:
    """Print from how many nodes on each limit is passed, the first one first."""
    size, link = options.files * CATALOG_BYTES_PER_FILE, options.link * 1e9 / 8
    limits = {
        f"the most loaded node has over {BALANCE_MAX:.0%} more than the mean": [
            n for n in sizes if placed[n].most > 1 + BALANCE_MAX
        ],
        "breakers need over 10 s to open where no notes arrive": [
            n for n in sizes if failed[n][0].closed_last_s > 10
        ],
        "a connection carries less than one file in a sharded epoch": [
            n for n in sizes if options.files < n**2
        ],
        f"a lost node is tried over {TRIALS_MAX} times a second": [
            n for n in sizes if failed[n][1].trials_per_s > TRIALS_MAX
        ],
        f"connections pass {DESCRIPTORS} descriptors (the usual soft limit)": [
            n for n in sizes if n - 1 > DESCRIPTORS
        ],
        "a catalog by star takes over 1 s (model)": [
            n for n in sizes if star_s(n, size, link) > 1
        ],
        "a catalog by tree takes over 1 s (model)": [
            n for n in sizes if tree_s(n, size, link, options.fan_out) > 1
        ],
        "owners of all files take over 1 s of a core": [
            n for n in sizes if placed[n].seconds > 1
        ],
    }
    print("\nWhat breaks first:\n")
    order = sorted(limits.items(), key=lambda item: min(item[1], default=1 << 30))
    for what, where in order:
        start = f"from {min(where):,} nodes" if where else f"not up to {sizes[-1]:,}"
        print(f"- {start}: {what}")


def main() -> int:
    """Print the tables for the numbers of nodes that were asked for."""
    asked = argparse.ArgumentParser(description=__doc__)
    add = asked.add_argument
    default = [8 << n for n in range(10)]
    add("--nodes", type=int, nargs="+", default=default, help="sizes of cluster")
    add("--files", type=int, default=1_281_167, help="files of the dataset")
    add("--file-bytes", type=int, default=110_000, help="mean size of a file")
    add("--rate", type=float, default=500.0, help="remote opens/s on each node")
    add("--link", type=float, default=100.0, help="model: Gbit/s of a node's link")
    add("--fan-out", type=int, default=4, help="model: children of a node in the tree")
    add("--handshake", type=float, default=0.002, help="model: seconds of one")
    add("--streams", type=int, default=4, help="model: copies at once on each node")
    options = asked.parse_args()
    sizes = sorted(set(options.nodes))
    if sizes[0] < 2 or options.files < 1 or options.fan_out < 2:
        asked.error("needs two nodes, a file, and a fan-out of two at least")
    placed = {nodes: place(nodes, options.files) for nodes in sizes}
    failed = {
        nodes: (silence(nodes, options.rate), silence(nodes, options.rate, told_s=0.1))
        for nodes in sizes
    }
    print_placement(placed, options.files)
    print_failure(failed, options.rate)
    print_model(sizes, options)
    print_verdict(sizes, placed, failed, options)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
