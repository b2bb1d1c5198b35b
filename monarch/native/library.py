"""The shared library of the data plane, with the signatures of its functions."""

from __future__ import annotations

import ctypes
import mmap
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from monarch.errors import MonarchError

if TYPE_CHECKING:
    from types import TracebackType

    import numpy.typing as npt

Memory: TypeAlias = "bytes | bytearray | memoryview | mmap.mmap | npt.NDArray[Any]"

_PATH = Path(__file__).parent / "libmonarch.so"

_P = ctypes.c_void_p
_U32 = ctypes.c_uint32
_U64 = ctypes.c_uint64
_INT = ctypes.c_int
_TEXT = ctypes.c_char_p
_TEXTS = ctypes.POINTER(ctypes.c_char_p)

# name -> (result, arguments), as declared in dataplane/api/api.h, its includes, and
# in job/job.h
_SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "monarch_layout": (ctypes.c_char_p, ()),
    "monarch_hash": (_U64, (_P, ctypes.c_size_t, _U64)),
    "monarch_wait_bucket_ns": (_U64, (_U32,)),
    "monarch_index_finish": (_INT, (_P, ctypes.c_size_t)),
    "monarch_index_check": (_INT, (_P, ctypes.c_size_t)),
    "monarch_index_find": (
        ctypes.c_int64,
        (_P, ctypes.c_char_p, ctypes.c_size_t),
    ),
    "monarch_inodes_unstable": (_INT, (ctypes.c_char_p,)),
    "monarch_file_system_traits": (_INT, (ctypes.c_char_p,)),
    "monarch_index_find_inode": (ctypes.c_int64, (_P, _U64, _U64)),
    "monarch_home_choose": (_INT, (ctypes.c_char_p, _INT, ctypes.c_char_p)),
    "monarch_home_list": (_INT, (ctypes.c_char_p, ctypes.c_char_p)),
    "monarch_job_name": (_INT, (_TEXTS, _TEXT)),
    "monarch_node_name": (None, (_TEXTS, _TEXT)),
    "monarch_hosts_job": (None, (_TEXT, _U64, _TEXT, _TEXT)),
    "monarch_clean_name": (None, (_TEXT, _TEXT)),
    "monarch_launched_by_open_mpi": (_INT, (_TEXTS,)),
    "monarch_config_file": (_TEXT, (_TEXTS, _TEXT, _TEXT)),
    "monarch_replica_name": (None, (_P, _U64, _U32, ctypes.c_char_p)),
    "monarch_state_change": (_INT, (_P, _U32, _U32, _U32, _INT)),
    "monarch_states_change": (_U64, (_P, _P, _U64, _P)),
    "monarch_states_confirm": (None, (_P, _P, _U64)),
    "monarch_marks_set": (None, (_P, _P, _P, ctypes.c_size_t)),
    "monarch_agent_state_store": (None, (_P, _U32)),
    "monarch_beat": (None, (_P,)),
    "monarch_catalog_state_store": (None, (_P, _U32)),
    "monarch_changes_apply": (None, (_P, _P, _P, _P)),
    "monarch_rights_read": (None, (_P,)),
    "monarch_rights_mark": (_U32, ()),
    "monarch_mounts_cover": (_INT, (_P, ctypes.c_char_p, ctypes.c_size_t)),
    "monarch_scan_list": (ctypes.c_int64, (_INT, _P, _P)),
    "monarch_scan_find": (_U32, (_INT, ctypes.c_char_p, _U32, _P, _U64)),
    "monarch_scan_readable": (None, (_INT, ctypes.c_char_p, _U32, _P)),
    "monarch_scan_rows": (None, (_P, _U32, _U64, _P, _P)),
    "monarch_rights_are_local": (_INT, (_INT,)),
    "monarch_is_pseudo": (_INT, (_INT,)),
    "monarch_seal_library": (ctypes.c_char_p, ()),
    "monarch_codec_library": (ctypes.c_char_p, (_U32,)),
    "monarch_coder_new": (_INT, (_U32, ctypes.c_int32, _U32, _P)),
    "monarch_coder_free": (None, (_P,)),
    "monarch_coder_learn": (_INT, (_P, _TEXT, ctypes.c_size_t)),
    "monarch_coder_pack": (
        ctypes.c_int64,
        (_P, _P, ctypes.c_size_t, _P, ctypes.c_size_t),
    ),
    "monarch_coder_unpack": (
        _INT,
        (_P, _P, ctypes.c_size_t, _P, ctypes.c_size_t),
    ),
    "monarch_coder_try": (ctypes.c_int64, (_P, _P, _P, _U64, _P)),
    "monarch_table_new": (_INT, (_P, _P)),
    "monarch_table_free": (None, (_P,)),
    "monarch_table_follow": (_INT, (_P, _P)),
    "monarch_table_set_peer": (None, (_P, _U32, _U32)),
    "monarch_table_begin": (_INT, (_P, _U32, _U32, _P)),
    "monarch_table_move": (_INT, (_P, _P)),
    "monarch_table_publish": (_INT, (_P, _P, _U32)),
    "monarch_table_fail": (_INT, (_P, _P, _U32, _INT)),
    "monarch_table_offer": (_INT, (_P, _U32, _U32)),
    "monarch_table_withdraw": (_INT, (_P, _U32)),
    "monarch_table_offers": (None, (_P, _P)),
    "monarch_table_remove": (None, (_P, _U32, _U32)),
    "monarch_table_set_capacity": (None, (_P, _U32, _U64)),
    "monarch_table_shrink": (None, (_P, _U32)),
    "monarch_table_retire": (_INT, (_P, _U32)),
    "monarch_table_account": (None, (_P, _U32, _P)),
    "monarch_table_fetched": (None, (_P, _U32, _P)),
    "monarch_table_spare": (ctypes.c_int64, (_P,)),
    "monarch_table_evict": (None, (_P, _U32)),
    "monarch_lru_oldest": (_U32, (_P, _P, _U32)),
    "monarch_table_pack": (None, (_P, _U32, _U32, _U32)),
    "monarch_table_packed": (None, (_P, _P)),
    "monarch_table_stop": (None, (_P,)),
    "monarch_table_tally": (None, (_P, _P)),
    "monarch_engine_new": (_INT, (_P, _P, _P)),
    "monarch_engine_event_fd": (_INT, (_P,)),
    "monarch_engine_requests": (_U32, (_P, _P, _U32)),
    "monarch_engine_submit": (_U32, (_P, _P, _U32)),
    "monarch_engine_completions": (_U32, (_P, _P, _U32)),
    "monarch_engine_demand": (None, (_P, _U32, _U32)),
    "monarch_engine_fill": (None, (_P, _P)),
    "monarch_engine_hint": (_INT, (_P, _U64, _P, _U64)),
    "monarch_engine_hints": (None, (_P, _P)),
    "monarch_hint_files": (_U64, (_P, _P, ctypes.c_size_t, _P)),
    "monarch_engine_fill_pause": (None, (_P, _INT)),
    "monarch_engine_fill_left": (None, (_P, _P)),
    "monarch_engine_set_background": (None, (_P, _U32, _U32)),
    "monarch_engine_set_readers": (None, (_P, _U32)),
    "monarch_engine_readers": (None, (_P, _P)),
    "monarch_engine_demands": (_U32, (_P, _P, _U32)),
    "monarch_engine_pace": (None, (_P, _P)),
    "monarch_engine_slowest": (_U32, (_P, _P)),
    "monarch_engine_health": (None, (_P, _P)),
    "monarch_engine_add_sibling": (_INT, (_P, ctypes.c_char_p)),
    "monarch_engine_forget": (None, (_P, _U32, _U64)),
    "monarch_engine_keep": (None, (_P, _U32, _U64)),
    "monarch_engine_drop_partial": (_U64, (_P, _U32, _U64, _U32)),
    "monarch_engine_drop_packed": (_U64, (_P, _U32, _U64, _U32)),
    "monarch_engine_adopt_pack": (ctypes.c_int64, (_P, _P)),
    "monarch_packing_id": (_U32, (_P,)),
    "monarch_pack_verify": (_INT, (_INT, _P, _P)),
    "monarch_pack_index_read": (ctypes.c_int64, (_INT, _P, _U64)),
    "monarch_engine_free": (_INT, (_P, _U32)),
    "monarch_server_new": (_INT, (_P, _P, _P)),
    "monarch_server_adopt": (_INT, (_P, _U32, _INT)),
    "monarch_server_drop": (_INT, (_P, _U32)),
    "monarch_server_traffic": (None, (_P, _P)),
    "monarch_server_free": (None, (_P,)),
    "monarch_receiver_new": (_INT, (_P, _P, _P)),
    "monarch_receiver_event_fd": (_INT, (_P,)),
    "monarch_receiver_connect": (_INT, (_P, _U32, _INT)),
    "monarch_receiver_disconnect": (_INT, (_P, _U32)),
    "monarch_receiver_submit": (_U32, (_P, _P, _U32)),
    "monarch_receiver_arrivals": (_U32, (_P, _P, _U32)),
    "monarch_receiver_traffic": (None, (_P, _P)),
    "monarch_receiver_free": (None, (_P,)),
}


def load(path: Path = _PATH) -> ctypes.CDLL:
    """Return the library with typed functions; MonarchError if it cannot be loaded."""
    try:
        library = ctypes.CDLL(os.fspath(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as error:
        raise MonarchError(
            f"cannot load the data plane ({error}); install Monarch again"
        ) from error
    return library


LIB = load()


def span(memory: Memory) -> tuple[int, int]:
    """Return address and length of a buffer, valid as long as the buffer."""
    import numpy as np

    if isinstance(memory, np.ndarray):
        if not memory.flags.c_contiguous:
            raise ValueError("the data plane needs contiguous memory")
        return memory.ctypes.data, memory.nbytes
    view = np.frombuffer(memory, dtype=np.uint8)
    return view.ctypes.data, view.nbytes


class Closable(ABC):
    """Native threads with memory of their own, until close() or the end of `with`."""

    @abstractmethod
    def close(self) -> object:
        """End the threads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
