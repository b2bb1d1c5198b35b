"""Fictitious reports of schema 2, for tests of pages: small and large, good and bad."""

import random
from dataclasses import replace
from typing import Any

from monarch.report import Snapshot, encode_node_report, merge, summarize
from monarch.report import TierFigures as Tier
from support.figures import JOB, MIB, node, snapshot

Report = dict[str, Any]
CONFIG = {
    "schema": 1,
    "datasets": [{"path": "/pfs/imagenet", "aliases": [], "include": ["**"]}],
    "tiers": [
        {"name": "ram", "kind": "ram", "path": "/dev/shm", "capacity": "64GiB"},
        {"name": "ssd", "kind": "ssd", "path": "/local", "capacity": "1TiB"},
    ],
    "cold_open": {"mode": "auto", "wait_max": 8 << 20, "timeout": 30.0},
    "fill": {"enabled": True, "concurrency": "auto", "bandwidth": "unlimited"},
    "peers": {"mode": "auto"},
    "retain": "job",
}


def names_of(count: int) -> tuple[str, ...]:
    """Return the names of nodes."""
    return tuple(f"gpu{number:02d}.cluster.example.org" for number in range(count))


def base(nodes: int = 1, **changes: Any) -> Report:
    """Return a report that the code makes of figures; `changes` are of a snapshot."""
    if nodes == 1:
        counts = {
            "opens_hit_tier0": 180_000,
            "bytes_hit_tier0": 18_000 * MIB,
            "opens_hit_tier1": 90_000,
            "bytes_hit_tier1": 9_000 * MIB,
            "opens_miss": 30_000,
            "bytes_miss": 3_000 * MIB,
            "opens_origin": 600,
            "bytes_origin": 60 * MIB,
            "opens_outside": 4_312,
        }
        tally = {
            "origin_read_bytes": 10_000 * MIB,
            "staged_files": 99_800,
            "staged_bytes": 9_980 * MIB,
            "busy_ns": 40 * 10**9,
            "origin_busy_ns": 40 * 10**9,
        }
        run = replace(JOB, files=100_000, bytes=10_000 * MIB, seconds=305.0)
        changes = {"run": run, "tiers": two_tiers(), **changes}
        return dict(summarize(snapshot(counts, tally, **changes)))
    names = names_of(nodes)
    parts = [uneven(node(number, names, **changes)) for number in range(nodes)]
    sent = {part.number: encode_node_report(part) for part in parts[1:]}
    return dict(merge(parts[0], sent))


def uneven(part: Snapshot) -> Snapshot:
    """Return the figures of a node with peers that sent it different amounts."""
    peers = tuple(
        replace(peer, fetched_bytes=peer.fetched_bytes * (1 + peer.number % 5))
        for peer in part.peers
    )
    return replace(part, peers=peers, tiers=two_tiers())


def two_tiers() -> tuple[Tier, ...]:
    """Return a tier of memory that is nearly full, and a large one on a disk."""
    ram = Tier("ram", "ram", 8 << 30, 8100 * MIB, 81_000, True)
    return ram, Tier("ssd", "ssd", 1 << 40, 1900 * MIB, 18_800, True)


def good(nodes: int = 1, passes: int = 3, points: int = 305) -> Report:
    """Return the report of a run of some passes, in which the first one staged."""
    report = base(nodes)
    run, opens = report["run"], report["hits"]["opens"]
    run |= run_of(run["started_s"] + run["seconds"])
    report |= {
        "schema": 2,
        "headline": headline(report),
        "reads": {
            "local_bytes": 123_456_789,
            "local_reads": 4_321,
            "origin_bytes": None,
            "origin_reads": 17,
        },
        "series": series(run["seconds"], points, opens, run["bytes"]),
        "passes": passes_of(passes, run["seconds"], opens, run["files"]),
        "slowest": slowest(nodes),
        "errors": [],
        "unstaged": [
            {
                "reason": "not requested before the job ended",
                "files": 200,
                "bytes": 20 * MIB,
                "examples": [f"/pfs/imagenet/val/img_{n}.JPEG" for n in range(3)],
            }
        ],
        "file_sizes": file_sizes(run["files"]),
        "opens_for_writing": 0,
    }
    times = {"count": 30_000, "total_s": 95.4, "p50_s": 0.0021, "p95_s": 0.0123}
    report["waits"] |= {**times, "p99_s": 0.087, "by_source": waits(nodes > 1)}
    programs = [{"program": "/usr/bin/python3", "active": True, "count": 4}]
    report["coverage"] |= {"untracked": 0, "programs": programs}
    for row in report.get("nodes", ()):
        row |= {"ready_share": row["hit_opens"] / row["opens"], "cpu_s": 12.5}
    return report


def run_of(ended_s: float) -> Report:
    """Return the additions of schema 2 about the run."""
    return {
        "ended_s": ended_s,
        "exit_status": 0,
        "agent_cpu_s": 14.25,
        "agent_rss_max_bytes": 61 * MIB,
        "startup_s": 1.2,
        "config": CONFIG,
        "versions": {
            "monarch": "0.2.0",
            "python": "3.11.2",
            "kernel": "6.1.0-18-amd64",
            "libc": "glibc 2.36",
        },
    }


def headline(report: Report) -> Report:
    """Return the headline of a report that has no headline yet."""
    return {
        "ready_share": report["hits"]["by_opens"],
        "opens": report["hits"]["opens"],
        "origin_bytes": report["origin"]["agent_read_bytes"],
        "origin_opened_bytes": report["origin"]["programs_opened_bytes"],
        "origin_multiple": None,
        "origin_multiple_max": 1.006,
        "time_saved": {
            "seconds": 74.2,
            "avoided_bytes": 20_960 * MIB,
            "origin_bytes_per_s": 250e6,
            "waits_s": 12.5,
            "startup_s": 1.2,
            "reason": "",
        },
    }


def slowest(nodes: int) -> list[Report]:
    """Return the ten slowest transfers."""
    return [
        {
            "path": f"/pfs/imagenet/train/n{number:08d}/img_{number * 977}.JPEG",
            "seconds": 2.5 / (number + 1),
            "bytes": 110_000 + 7919 * number,
            "source": "peer 3" if nodes > 1 and number % 3 == 1 else "origin",
        }
        for number in range(10)
    ]


def series(seconds: float, points: int, opens: int, size: int) -> Report:
    """Return a time series: waits in the first third, then all is ready."""
    noise = random.Random(7)
    at_s = [seconds * (point + 1) / points for point in range(points)]
    counts: dict[str, list[int]] = {
        name: [0] for name in ("ready", "waited", "origin", "outside")
    }
    staged = [0]
    for point in range(points):
        part = min(1.0, (point + 1) / (points / 3))
        each = opens / points * noise.uniform(0.7, 1.2)
        counts["ready"].append(counts["ready"][-1] + int(each * part))
        counts["waited"].append(counts["waited"][-1] + int(each * (1 - part)))
        counts["origin"].append(counts["origin"][-1] + (point % 10 == 0))
        counts["outside"].append(counts["outside"][-1] + int(each * 0.02))
        staged.append(min(size, staged[-1] + int(size * 3 / points)))
    ram = 8 << 30
    return {
        "period_s": seconds / points,
        "at_s": at_s,
        "opens": {name: values[1:] for name, values in counts.items()},
        "staged_bytes": staged[1:],
        "origin_bytes": [int(value * 1.01) for value in staged[1:]],
        "tiers": [
            {
                "name": "ram",
                "capacity_bytes": ram,
                "used_bytes": [min(ram, value) for value in staged[1:]],
            },
            {
                "name": "ssd",
                "capacity_bytes": 1 << 40,
                "used_bytes": [max(0, value - ram) for value in staged[1:]],
            },
        ],
    }


def passes_of(count: int, seconds: float, opens: int, files: int) -> list[Report]:
    """Return passes of which the first one waits for files."""
    each = seconds / max(1, count)
    return [
        {
            "number": number + 1,
            "began_s": each * number,
            "ended_s": each * (number + 1 - 0.3 * min(1, number)),
            "opens": opens // count,
            "files": files,
            "ready_share": 0.71 if number == 0 else 0.998,
        }
        for number in range(count)
    ]


def waits(peers: bool) -> list[Report]:
    """Return waits in buckets of powers of two, from one or two sources."""
    counts = (3, 40, 900, 4_000, 11_000, 9_000, 3_500, 900, 380, 120, 60, 12, 5)
    edges = [2 ** (power + 18) / 1e9 for power in range(len(counts) + 1)]

    def row(source: str, share: float, moved: int) -> Report:
        shifted = [*counts[moved:], *counts[:moved]]
        return {
            "source": source,
            "count": sum(int(count * share) for count in shifted),
            "total_s": 80.0 * share,
            "buckets": [
                {"from_s": low, "to_s": high, "count": int(count * share)}
                for low, high, count in zip(edges, edges[1:], shifted, strict=False)
            ],
        }

    return [row("origin", 1.0, 0), *([row("peer", 0.6, 2)] if peers else [])]


def file_sizes(files: int) -> list[Report]:
    """Return a histogram of the sizes of files in powers of 4."""
    parts = (0.01, 0.04, 0.15, 0.4, 0.3, 0.09, 0.01)
    return [
        {
            "from_bytes": 4 ** (power + 5),
            "to_bytes": 4 ** (power + 6),
            "files": int(files * part),
            "bytes": int(files * part) * 4 ** (power + 5) * 2,
        }
        for power, part in enumerate(parts)
    ]


def empty() -> Report:
    """Return the report of a job whose dataset has no file."""
    tiers = (Tier("ram", "ram", 1 << 30, 0, 0, True),)
    none = snapshot(run=replace(JOB, files=0, bytes=0), tiers=tiers)
    report = dict(summarize(none))
    report["schema"] = 2
    report["headline"] = dict.fromkeys(headline(report)) | {
        "opens": 0,
        "origin_bytes": 0,
        "origin_opened_bytes": 0,
        "time_saved": {
            "seconds": None,
            "avoided_bytes": 0,
            "origin_bytes_per_s": None,
            "waits_s": 0.0,
            "startup_s": 0.4,
            "reason": "nothing was read from the origin",
        },
    }
    report["run"] |= {"exit_status": 0, "startup_s": 0.4, "config": CONFIG}
    report |= {"passes": [], "slowest": [], "errors": [], "file_sizes": []}
    report["series"] = {
        "period_s": 1.0,
        "at_s": [1.0],
        "opens": {name: [0] for name in ("ready", "waited", "origin", "outside")},
        "staged_bytes": [0],
        "origin_bytes": [0],
        "tiers": [],
    }
    return report


def plain() -> Report:
    """Return the report of a job for which nothing was staged."""
    report = empty()
    reason = "scanning /pfs/imagenet failed: Stale file handle"
    report["run"] |= {"plain": reason, "exit_status": 0}
    report["tiers"] = []
    return report


def failed(nodes: int = 1) -> Report:
    """Return the report of a run with every trouble."""
    report = good(nodes, passes=1)
    report["run"]["exit_status"] = 137
    report["headline"]["ready_share"] = 0.412
    report["tiers"][1]["in_service"] = False
    report["coverage"] |= {
        "processes": report["coverage"]["processes"] + 3,
        "untracked": 1,
        "inactive": [
            {"program": "/opt/site/bin/prepare-static", "count": 2},
            {"program": "/usr/bin/sudo", "count": 1},
        ],
    }
    report["share"] |= {"unplaced_files": 41_000, "unplaced_bytes": 4_100 * MIB}
    report["unstaged"].append(
        {
            "reason": "no tier had room for them",
            "files": 41_000,
            "bytes": 4_100 * MIB,
            "examples": ["/pfs/imagenet/train/n01440764/" + "deep/" * 60 + "x.JPEG"],
        }
    )
    report |= troubles()
    return report


def troubles() -> Report:
    """Return the parts of a report that describe errors."""
    fallback = "opens read the origin because the file could not be staged"
    folder = "/pfs/imagenet"
    return {
        "errors": [
            {
                "errno": "EACCES",
                "operation": "open",
                "count": 40,
                "example": f"{folder}/private/a.JPEG",
            },
            {
                "errno": "EIO",
                "operation": "read",
                "count": 2,
                "example": f"{folder}/train/broken.JPEG",
            },
        ],
        "fallbacks": [{"cause": "origin_refused", "text": fallback, "opens": 600}],
        "survived": [
            {"what": "tiers_full", "text": "of a tier that was full", "count": 12}
        ],
        "failures": [f"{folder}/private/{n}: EACCES" for n in range(14)],
        "passed_roots": [folder],
        "opens_for_writing": 4_000,
    }


HOSTILE = "<script>alert(1)</script>\"' onload=x & \x1b[31m\u202etxt\udc80{{ 7*7 }}\n"


def hostile(nodes: int = 2) -> Report:
    """Return a report in which each text is an attempt to break the page."""
    texts = {"kind", "standing", "errno"}

    def worse(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: worse(one, key) for key, one in value.items()}
        if isinstance(value, list):
            return [worse(one, name) for one in value]
        is_free = isinstance(value, str) and value and name not in texts
        return f"{HOSTILE}{value}" if is_free else value

    report: Report = worse(failed(nodes))
    report["run"]["config"] = {HOSTILE: HOSTILE, "list": [HOSTILE * 9]}
    report["run"]["versions"] = {HOSTILE: HOSTILE}
    return report
