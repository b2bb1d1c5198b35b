"""`monarch records`: what the Records of packed files are, and what they cost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from monarch.cli.terminal import print_parts
from monarch.report.format import Part, Table, many
from monarch.units import format_count, format_size

if TYPE_CHECKING:
    from monarch.records import RecordIndex

GROUP_BYTES: Final = (1 << 20, 4 << 20, 16 << 20, 64 << 20)
EPILOG = """\b
Examples:
  monarch records /pfs/train.lmdb
  monarch records '/pfs/train-*.tfrecord'
  monarch records /pfs/train.h5::/images
  monarch records /pfs/train.parquet::image
"""


@click.command("records", epilog=EPILOG)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--fresh", is_flag=True, help="Make the index anew.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def records(paths: tuple[str, ...], fresh: bool, as_json: bool) -> None:
    """Index packed records, and tell what an epoch over them costs.

    PATH is an LMDB database, a TFRecord, tar or npy file, FILE.h5::/DATASET,
    FILE.parquet::COLUMN, or a folder, of which each file is a record. Payloads are not
    read. The index is kept for later.
    """
    from monarch.records import open_records

    opened = open_records(paths, fresh=fresh)
    try:
        found = _figures(opened.index)
    finally:
        opened.close()
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    print_parts(_parts(found))


def _figures(index: RecordIndex) -> dict[str, Any]:
    import numpy as np

    from monarch.records.groups import group

    sizes = index.units["length"]
    rows = []
    for size in GROUP_BYTES:
        groups = group(index, size)
        requests, total = groups.cost()
        rows.append(
            {
                "group_bytes": size,
                "groups": len(groups),
                "requests": requests,
                "bytes": total,
            }
        )
    return {
        "format": index.format,
        "files": len(np.unique(index.units["object"])),
        "records": len(index),
        "encoded_units": len(index.units) if index.is_decoded else 0,
        "bytes": index.bytes,
        "smallest_bytes": int(sizes.min()) if len(sizes) else 0,
        "largest_bytes": int(sizes.max()) if len(sizes) else 0,
        "details": dict(index.details),
        "epoch": rows,
    }


def _parts(found: dict[str, Any]) -> list[Part]:
    size = format_size(found["bytes"])
    files = many(found["files"], "files")
    what = many(found["records"], "records")
    units = ""
    if found["encoded_units"]:
        units = f" in {many(found['encoded_units'], 'encoded units')}"
    kind = "units" if found["encoded_units"] else "records"
    table = Table(
        ("groups of", "groups", "requests in an epoch", "bytes read"),
        (12, 10, 22, 14),
        tuple(
            (
                format_size(row["group_bytes"]),
                format_count(row["groups"]),
                format_count(row["requests"]),
                format_size(row["bytes"]),
            )
            for row in found["epoch"]
        ),
    )
    return [
        f"monarch: {found['format']}: {what}{units}, {size} in {files}",
        f"  {kind} of {format_size(found['smallest_bytes'])} to "
        f"{format_size(found['largest_bytes'])}",
        table,
    ]
