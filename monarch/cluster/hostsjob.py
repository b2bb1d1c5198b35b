"""The name of a job whose nodes are given as a list, as the launcher makes it too."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from monarch.config import RunOptions
from monarch.config.files import user_file

# What the launcher calls a job that nothing names.
_MADE_UP: Final = "local-"
_FILE_BYTES_MAX: Final = 256 * 1024
_NOTHING: Final = 0xCBF29CE484222325


def hosts_job(
    hosts: str, options: RunOptions, environ: Mapping[str, str], cwd: Path
) -> str:
    """Return the name of a job by what the same command on each host has in common.

    Args:
        hosts: the list as it was given.
    """
    fingerprint = _number(_text(_NOTHING, hosts), _configuration(options))
    name = user_file(options, environ, cwd)
    if name is not None:
        fingerprint = _bytes(fingerprint, _content(cwd / name))
    return f"hosts-{fingerprint & 0xFFFFFFFFFFFF:012x}"


def mesh_job(
    job: str,
    hosts: Sequence[str],
    options: RunOptions,
    environ: Mapping[str, str],
    cwd: Path,
) -> str:
    """Return by which name the nodes of a job meet.

    It is that of the run directory, unless the launcher has made that up: it does not
    know of `hosts` in a configuration file.
    """
    if not hosts or not job.startswith(_MADE_UP):
        return job
    return hosts_job(",".join(hosts), options, environ, cwd)


def _configuration(options: RunOptions) -> int:
    """Return the fingerprint of all options, whatever the order between them."""
    fingerprint = 0
    for name, values in sorted(options.given().items()):
        given = _NOTHING
        for value in values:
            given = _text(given, value)
        fingerprint = _number(_text(fingerprint or _NOTHING, name), given)
    return fingerprint


def _bytes(fingerprint: int, more: bytes) -> int:
    """Add bytes to an FNV-1a hash."""
    for byte in more:
        fingerprint = (fingerprint ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return fingerprint


def _text(fingerprint: int, text: str) -> int:
    return _bytes(fingerprint, os.fsencode(text) + b"\0")


def _number(fingerprint: int, number: int) -> int:
    return _bytes(fingerprint, number.to_bytes(8, "little"))


def _content(path: Path) -> bytes:
    try:
        if path.is_file():
            with path.open("rb") as file:
                return file.read(_FILE_BYTES_MAX)
    except OSError:
        pass
    return b""
