"""Packed Records and their places in files of LMDB, TFRecord, tar, HDF5 and others."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
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

# Imported on first use: the reader of a node needs few of these, and starts faster.
_MODULES: Final = {
    "FileSource": "sources",
    "Range": "index",
    "RecordIndex": "index",
    "RecordObject": "index",
    "Records": "opening",
    "RecordsError": "errors",
    "Source": "sources",
    "UnitDecoder": "columns",
    "members": "streams",
    "open_records": "opening",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use.

    Raises:
        AttributeError: unknown name.
    """
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
