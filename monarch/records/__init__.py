"""Packed Records: where they lie in files of LMDB, TFRecord, tar, HDF5 and others."""

from monarch.records.columns import UnitDecoder
from monarch.records.errors import RecordsError
from monarch.records.index import Range, RecordIndex, RecordObject
from monarch.records.opening import Records, open_records
from monarch.records.sources import FileSource, Source
from monarch.records.streams import members

__all__ = [
    "FileSource",
    "Range",
    "RecordIndex",
    "RecordObject",
    "Records",
    "RecordsError",
    "Source",
    "UnitDecoder",
    "members",
    "open_records",
]
