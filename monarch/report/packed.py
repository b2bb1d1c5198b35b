"""Packed Tiers in the report: their content, and the cost of packing and decoding."""

from collections.abc import Mapping
from typing import Any

from monarch.report.format import many
from monarch.units import format_count, format_duration, format_size


def packed_summary(tally: Mapping[str, int]) -> dict[str, Any] | None:
    """Return the figures of packed Tiers; None if nothing was packed or decoded.

    Returns:
        files, bytes, stored_bytes: packed Files, their bytes including pieces of large
            Files, and the space in the Tiers with frame headers; ratio: of both sizes.
        pieces: packed pieces of large Files.
        raw_files: packed Files that are stored uncompressed, as they hardly shrink.
        pack_s, decode_s: total processor time.
        decoded_files, decoded_bytes: counted at each decoding, for large Files only the
            bytes; decodes_per_file: how often each byte was decoded on average.
        dropped_files: Files with damaged frames.
    """
    files, decoded = tally["packed_files"], tally["unpacked_files"]
    if not (files or decoded or tally["packed_extents"]):
        return None
    stored = tally["stored_bytes"]
    return {
        "files": files,
        "bytes": tally["packed_bytes"],
        "pieces": tally["packed_extents"],
        "stored_bytes": stored,
        "ratio": tally["packed_bytes"] / stored if stored else 1.0,
        "raw_files": tally["raw_files"],
        "pack_s": tally["pack_ns"] / 1e9,
        "decoded_files": decoded,
        "decoded_bytes": tally["unpacked_bytes"],
        "decode_s": tally["unpack_ns"] / 1e9,
        "decodes_per_file": tally["unpacked_bytes"] / max(1, tally["packed_bytes"]),
        "dropped_files": tally["frames_dropped"],
    }


def packed_lines(packed: Mapping[str, Any] | None) -> list[str]:
    """Return the lines about packed Tiers, if any.

    Processor time is reported, because packing takes it from programs.
    """
    if not packed:
        return []
    return [_held(packed), _decoded(packed)]


def _held(packed: Mapping[str, Any]) -> str:
    size, stored = format_size(packed["bytes"]), format_size(packed["stored_bytes"])
    line = f"  packed: {many(packed['files'], 'files')}, {size} in {stored} "
    line += f"({packed['ratio']:.2f} x)"
    if packed.get("pieces"):
        line += f", of large files in {many(packed['pieces'], 'pieces')}"
    if packed["raw_files"]:
        line += f", {format_count(packed['raw_files'])} of them as they are"
    return f"{line}; compressed in {format_duration(packed['pack_s'])} of a processor"


def _decoded(packed: Mapping[str, Any]) -> str:
    files, size = packed["decoded_files"], format_size(packed["decoded_bytes"])
    number = f"{many(files, 'files')}, " if files else ""
    decoded = f"  decoded: {number}{size} in "
    decoded += f"{format_duration(packed['decode_s'])} of a processor, "
    decoded += f"{packed['decodes_per_file']:.2f} times each"
    if packed["dropped_files"]:
        decoded += f"; {many(packed['dropped_files'], 'files')} were damaged"
    return decoded
