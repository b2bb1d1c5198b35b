"""`monarch records`: indexes the Records of packed files, and reports their cost."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import click

from monarch.cli.terminal import RecordsProgress, print_line, print_parts
from monarch.report.format import Part, Table, many
from monarch.units import format_count, format_duration, format_size

if TYPE_CHECKING:
    from monarch.records import RecordIndex, Records

ROUND_TRIPS_S: Final = (0.001, 0.01, 0.1)
IN_FLIGHT: Final = (1, 64, 1024)
GROUP_BYTES: Final = (1 << 20, 4 << 20, 16 << 20, 64 << 20)
EPILOG = """\b
Examples:
  monarch records /pfs/train.lmdb
  monarch records '/pfs/train-*.tfrecord'
  monarch records /pfs/train.h5::/images
  monarch records /pfs/train.parquet::image
  monarch records 'redis://HOST/0?index=imagenet'
  monarch records ingest /pfs/imagenet --to redis://HOST/0 --index imagenet
"""
_SHOW: Final = "show"


class _Records(click.Group):
    """`records PATH...` itself, and `records ingest`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Treat words that are no command as the paths of `records show`."""
        if args and args[0] not in (*self.commands, "--help"):
            args = [_SHOW, *args]
        return super().parse_args(ctx, args)


@click.group("records", cls=_Records, epilog=EPILOG, no_args_is_help=True)
def records() -> None:
    """Index records, tell what an epoch over them costs, or write them to a store.

    \b
    monarch records PATH...             the same as `monarch records show PATH...`
    monarch records ingest SRC --to URL
    """


@records.command(_SHOW)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--fresh", is_flag=True, help="Make a new index.")
@click.option(
    "--keep",
    metavar="NAME",
    help="Write the index of a listed store into it, so that URL?index=NAME reads it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(paths: tuple[str, ...], fresh: bool, keep: str | None, as_json: bool) -> None:
    """Index packed records, and tell what an epoch over them costs.

    PATH is an LMDB database, a TFRecord, tar or npy file, FILE.h5::/DATASET,
    FILE.parquet::COLUMN, a folder, of which each file is a record, or the address of a
    store, such as redis://HOST/0?index=NAME. Payloads are not read, unless that is the
    faster way to what is between them. The index is kept for later.
    """
    from monarch.records.opening import Making, expanded, records_of

    with closing(RecordsProgress(f"records of {paths[0]}")) as progress:
        opened = records_of(
            *Making(fresh=fresh, progress=progress).whole(expanded(paths))
        )
    with closing(opened):
        found = _figures(opened.index) | _store_figures(opened)
        if keep is not None:
            from monarch.cli.ingest import keep_index

            found["kept_as"] = keep_index(opened, paths[0], keep)
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    print_parts(_parts(found))
    if keep is not None:
        print_line(f"  the index is kept; open it as {found['kept_as']}")


@records.command("ingest")
@click.argument("source", metavar="SRC")
@click.option("--to", "to", required=True, metavar="URL", help="Address of the store.")
@click.option(
    "--index", "name", metavar="NAME", help="Name of the index; SRC's name by default."
)
@click.option(
    "--columns",
    "columns",
    metavar="FILE",
    help="Take columns, such as label, from a CSV file with a row for each record.",
)
@click.option(
    "--verify/--no-verify",
    default=True,
    help="Read everything back and compare checksums (default).",
)
def ingest(
    source: str, to: str, name: str | None, columns: str | None, verify: bool
) -> None:
    """Write the records of SRC to a store, with an index of them.

    SRC is whatever `monarch records` takes. An ingest that was interrupted goes on
    where it stopped when it is called again. Passwords come from the environment or a
    file, see `monarch help stores`.
    """
    from monarch.cli.ingest import run_ingest

    run_ingest(source, to, name, columns, verify=verify)


def _figures(index: RecordIndex) -> dict[str, Any]:
    import numpy as np

    from monarch.records.groups import group
    from monarch.records.keys import UNKNOWN_LENGTH

    sizes = index.units["length"]
    sizes = sizes[sizes != UNKNOWN_LENGTH]
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
        "bytes": int(sizes.sum(dtype=np.uint64)),
        "unknown_lengths": len(index.units) - len(sizes),
        "smallest_bytes": int(sizes.min()) if len(sizes) else 0,
        "largest_bytes": int(sizes.max()) if len(sizes) else 0,
        "details": dict(index.details),
        "epoch": rows,
    }


def _store_figures(opened: Records) -> dict[str, Any]:
    """Return the figures that only Records in a store have; nothing for files."""
    index = opened.index
    if index.keys is None:
        return {}
    columns = {
        name: len(column.names) if column.names is not None else None
        for name, column in opened.columns.items()
    }
    seconds = [
        {
            "round_trip_s": round_trip_s,
            "in_flight": in_flight,
            "seconds": len(index.units) * round_trip_s / in_flight,
        }
        for round_trip_s in ROUND_TRIPS_S
        for in_flight in IN_FLIGHT
    ]
    return {"columns": columns, "is_keyed": index.is_keyed, "least_seconds": seconds}


def _store_parts(found: dict[str, Any]) -> list[Part]:
    """Return the lines on a store: columns, and the minimum duration of an epoch."""
    columns = [
        name if count is None else f"{name} ({many(count, 'values')})"
        for name, count in found["columns"].items()
    ]
    rows = []
    for round_trip_s in ROUND_TRIPS_S:
        least = [
            format_duration(row["seconds"])
            for row in found["least_seconds"]
            if row["round_trip_s"] == round_trip_s
        ]
        rows.append((format_duration(round_trip_s), *least))
    heads = [f"{count} in flight" for count in IN_FLIGHT]
    return [
        f"  columns: {', '.join(columns) or 'none'}",
        "  an epoch takes at least, without the time of the bytes:",
        Table(("round trip", *heads), (12, 16, 16, 18), tuple(rows)),
    ]


def _parts(found: dict[str, Any]) -> list[Part]:
    size = format_size(found["bytes"])
    if found["unknown_lengths"]:
        size += f" and {many(found['unknown_lengths'], 'unknown lengths')}"
    what_is_read = "objects" if "columns" in found else "files"
    files = many(found["files"], what_is_read)
    what = many(found["records"], "records")
    units = ""
    if found["encoded_units"]:
        units = f" in {many(found['encoded_units'], 'encoded units')}"
    kind = "units" if found["encoded_units"] else "records"
    if found.get("is_keyed"):
        return [
            f"monarch: {found['format']}: {what}, {size}",
            f"  {kind} of {format_size(found['smallest_bytes'])} to "
            f"{format_size(found['largest_bytes'])}",
            *_store_parts(found),
        ]
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
