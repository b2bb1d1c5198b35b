"""Large files that programs read by block: the reads that Monarch has seen."""

from collections.abc import Mapping
from typing import Any

from monarch.report.format import many, percent
from monarch.report.model import Report, ratio
from monarch.units import format_count, format_size


def large_summary(counters: Mapping[str, int]) -> dict[str, Any]:
    """Return the counted reads of large Files, and the opens without any.

    Read calls are counted one by one. A mapping is read without calls, and a stream is
    read by calls within libc, so these opens are counted instead. A child that uses an
    open of its parent counts it once more, but no count exceeds that of all opens.

    Returns:
        opens: opens that are read by block.
        mapped_opens: opens with a mapping, with or without read calls.
        unused_opens: opens without a read or a mapping that the Shim has seen.
        unseen_opens: the sum of both; unseen_share: its share of all opens.
        origin_unseen_opens: unseen opens that may have read the origin.
    """
    opens = counters["origin_blocks"]
    used = min(counters["blocks_used"], opens)
    mapped = min(counters["blocks_mapped"], used)
    unused = opens - used
    return {
        "local_bytes": counters["bytes_local"],
        "local_reads": counters["reads_local"],
        "origin_bytes": counters["bytes_read_origin"],
        "origin_reads": counters["reads_origin"],
        "local_maps": counters["maps_local"],
        "origin_maps": counters["maps_origin"],
        "opens": opens,
        "mapped_opens": mapped,
        "unused_opens": unused,
        "unseen_opens": mapped + unused,
        "unseen_share": ratio(mapped + unused, opens),
        "origin_unseen_opens": unused + min(mapped, counters["maps_origin"]),
    }


def block_opens(report: Report) -> int:
    """Return the number of opens of large files that are read by block."""
    rows = report.get("sources") or ()
    return sum(row["opens"] for row in rows if row["kind"] == "blocks")


def large_phrases(report: Report) -> list[str]:
    """Return phrases about opens of large files by block, and about their reads."""
    found: Mapping[str, Any] = report.get("reads") or {}
    parts = []
    if opens := block_opens(report):
        parts.append(f"{many(opens, 'opens')} read large files by block")
        if unseen := found.get("unseen_opens"):
            share = percent(found["unseen_share"])
            parts[0] += f", {format_count(unseen)} of them ({share}) by unseen reads"
    if calls := found.get("local_reads", 0) + found.get("origin_reads", 0):
        share = percent(ratio(found["local_reads"], calls))
        reads = many(calls, "reads")
        parts.append(f"{share} of {reads} of large files came from copies")
    return parts


def large_lines(report: Report) -> list[str]:
    """Return the lines about large files: the sources of reads, and unseen reads."""
    found: Mapping[str, Any] = report.get("reads") or {}
    lines = []
    if local := found.get("local_reads"):
        lines.append(
            f"  {many(local, 'reads')} of large files came from copies on the node, "
            f"{format_size(found['local_bytes'])}; "
            f"{format_count(found['origin_reads'])} from the origin"
        )
    return lines + unseen_lines(report)


def unseen_lines(report: Report) -> list[str]:
    """Return the line about opens with unseen reads, if any."""
    found: Mapping[str, Any] = report.get("reads") or {}
    if not found.get("unseen_opens"):
        return []
    share = percent(found["unseen_share"])
    of_opens = f"{share} of {many(found['opens'], 'opens')} of large files"
    return [f"  unseen reads: {of_opens}; {'; '.join(_reasons(found))}"]


def _reasons(found: Mapping[str, Any]) -> list[str]:
    """Return the reasons of unseen reads, and the sources of mappings."""
    parts = []
    if mapped := found["mapped_opens"]:
        parts.append(
            f"{many(mapped, 'opens')} mapped the file, "
            f"{many(found['local_maps'], 'mappings')} showed the copy and "
            f"{format_count(found['origin_maps'])} the origin's file"
        )
    if unused := found["unused_opens"]:
        parts.append(
            f"{many(unused, 'opens')} read the origin by a stream or another call that "
            "Monarch does not see, or read nothing"
        )
    return parts
