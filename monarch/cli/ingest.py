"""`monarch records ingest`: the Records of files, written to a store."""

from __future__ import annotations

import os
import re
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from monarch.cli.terminal import RecordsProgress, print_line
from monarch.errors import UsageError
from monarch.records import Records, open_records
from monarch.records.ingest import IngestOptions, ingest
from monarch.records.labels import Column, Columns
from monarch.records.stores.address import StoreAddress
from monarch.records.stores.kept import write_kept
from monarch.records.stores.opening import client_of
from monarch.report.format import many
from monarch.units import format_duration, format_size

_NO_LISTING: Final = (
    "--keep needs a listed destination: redis://HOST/DB or s3://BUCKET/PREFIX/"
)
_LISTED: Final = re.compile(r"(rediss?|s3)://")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


def run_ingest(
    source: str, to: str, name: str | None, columns: str | None, *, verify: bool
) -> None:
    """Write Records to a store and show progress.

    Raises:
        UsageError: an argument is not valid, or the store or the source fails.
    """
    address = StoreAddress.parse(to)
    found = name or address.options.get("index") or _usual_name(source)
    _check_name("--index", found)
    began_s = time.monotonic()
    with (
        closing(RecordsProgress(f"records of {source}")) as progress,
        closing(open_records(source, progress=progress)) as records,
        closing(client_of(address)) as writer,
    ):
        chosen = None if columns is None else columns_in(Path(columns))
        given = IngestOptions(found, chosen, verify)
        done = ingest(records, writer, given, progress)
    resumed = f", {many(done.resumed, 'records')} earlier" if done.resumed else ""
    print_line(
        f"monarch: wrote {many(done.records, 'records')}, {format_size(done.bytes)}, "
        f"in {format_duration(time.monotonic() - began_s)}{resumed}; open them as "
        f"{address.with_index(found)}"
    )


def keep_index(opened: Records, path: str, name: str) -> str:
    """Write the listed Records of a store into the store, as an index.

    Returns:
        The address that reads the index instead of a listing.

    Raises:
        UsageError: an argument is not valid.
        RecordsError: the store refuses it.
    """
    _check_name("--keep", name)
    keys = opened.index.keys
    if keys is None or not _LISTED.match(path) or not opened.index.is_keyed:
        raise UsageError(f"{path}: {_NO_LISTING}")
    address = StoreAddress.parse(path)
    if "index" in address.options:
        raise UsageError(f"{path}: {_NO_LISTING}")
    with closing(client_of(address)) as writer:
        write_kept(writer, name, replace(keys, columns=opened.columns))
    return str(address.with_index(name))


def _check_name(option: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{option} {name!r}: use letters, digits and . _ - only")


def columns_in(file: Path) -> Columns:
    """Return the columns of a CSV file with a header: numbers if all values are.

    Raises:
        UsageError: it cannot be read, or its rows differ in length.
    """
    import csv

    try:
        with file.open(newline="") as opened:
            header, *rows = csv.reader(opened)
    except (OSError, ValueError) as error:
        told = error.strerror if isinstance(error, OSError) else "it has no header"
        raise UsageError(f"{file}: {told}") from error
    for number, row in enumerate(rows):
        if len(row) != len(header):
            text = f"{len(row)} values, {len(header)} are named in its first line"
            raise UsageError(f"{file}: row {number + 1} has {text}")
    return {
        name: Column.of(_values([row[place] for row in rows]))
        for place, name in enumerate(header)
    }


def _values(texts: list[str]) -> list[Any]:
    for kind in (int, float):
        try:
            return [kind(text) for text in texts]
        except ValueError:
            continue
    return texts


def _usual_name(source: str) -> str:
    return Path(os.path.abspath(source.partition("::")[0])).name.partition(".")[0]
