"""The names of a job and its nodes, and the configuration file, from native code.

The launcher, which must not start Python, uses the same code.
"""

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from monarch.native.library import LIB

# As in job/job.h.
NAME_MAX: Final = 64
_PATH_MAX: Final = 4096


def job_name(environ: Mapping[str, str]) -> str | None:
    """Return the job name set by a scheduler or MPI; None if none is set."""
    name = ctypes.create_string_buffer(NAME_MAX + 1)
    found = LIB.monarch_job_name(_variables(environ), name)
    return name.value.decode() if found else None


def node_name(environ: Mapping[str, str]) -> str:
    """Return the name of this node."""
    name = ctypes.create_string_buffer(NAME_MAX + 1)
    LIB.monarch_node_name(_variables(environ), name)
    return name.value.decode()


def hosts_job(hosts: str, options: int, config: Path | None) -> str:
    """Return a job name derived from the parts of a command that all hosts share.

    Args:
        hosts: the list as the user wrote it.
        options: the fingerprint of the options, which the launcher computes.
        config: the user's configuration file.
    """
    name = ctypes.create_string_buffer(NAME_MAX + 1)
    path = None if config is None else os.fsencode(config)
    LIB.monarch_hosts_job(os.fsencode(hosts), options, path, name)
    return name.value.decode()


def safe_name(text: str) -> str:
    """Return `text` as part of a file name: 64 harmless bytes at most."""
    name = ctypes.create_string_buffer(NAME_MAX + 1)
    LIB.monarch_clean_name(os.fsencode(text), name)
    return name.value.decode()


def launched_by_open_mpi(environ: Mapping[str, str]) -> bool:
    """Return whether Open MPI's daemons have launched this process.

    Under Slurm the daemons are a step without the node of mpiexec itself.
    """
    return bool(LIB.monarch_launched_by_open_mpi(_variables(environ)))


def config_file(environ: Mapping[str, str], directory: Path) -> str | None:
    """Return the name of the user's configuration file; None if it does not exist.

    Args:
        environ: may contain the name of the file, or the user's home.
        directory: the base of a relative name.
    """
    place = ctypes.create_string_buffer(_PATH_MAX)
    at = os.fsencode(directory)
    found = LIB.monarch_config_file(_variables(environ), at, place)
    return None if found is None else os.fsdecode(found)


def _variables(environ: Mapping[str, str]) -> ctypes.Array[ctypes.c_char_p]:
    """Return an environment in C's representation."""
    pairs = [os.fsencode(f"{name}={value}") for name, value in environ.items()]
    return (ctypes.c_char_p * (len(pairs) + 1))(*pairs, None)
