"""The configuration files of the site and of the user, in order of precedence."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from monarch.config.run_options import RunOptions
from monarch.config.schema import SCHEMA
from monarch.config.tree import Fault, Layer, Node, Refused, Where, describe, find
from monarch.native.names import config_file

SITE_FILE: Path = Path("/etc/monarch-staging/config.yaml")
LOCAL_FILE: Final = "monarch.yaml"
SITE_VARIABLE: Final = "MONARCH_STAGING_SITE_CONFIG"


@dataclass(frozen=True, slots=True)
class Source:
    """A file that was read: its values and its faults."""

    path: Path
    tree: Node
    faults: tuple[Fault, ...]


def read_sources(
    options: RunOptions, environ: Mapping[str, str], cwd: Path
) -> list[Source]:
    """Return the site's files and the user's one file, weakest first."""
    sources = [_read_optional(cwd, str(SITE_FILE), Layer.SITE)]
    if environ.get(SITE_VARIABLE):
        sources.append(_read(cwd, environ[SITE_VARIABLE], Layer.SITE))
    name = user_file(options, environ, cwd)
    if name is not None:
        sources.append(_read(cwd, name, Layer.FILE))
    return [source for source in sources if source is not None]


def user_file(options: RunOptions, environ: Mapping[str, str], cwd: Path) -> str | None:
    """Return the name of the user's one file, or None."""
    return options.config or config_file(environ, cwd)


def _read_optional(cwd: Path, name: str, layer: Layer) -> Source | None:
    return _read(cwd, name, layer) if os.path.lexists(cwd / name) else None


def _read(cwd: Path, name: str, layer: Layer) -> Source:
    # Imported for the first file: a job may have none.
    from monarch.config.yaml import read_file

    path = cwd / name
    faults: tuple[Fault, ...] = ()
    try:
        tree = read_file(path, name, layer)
    except Refused as refused:
        if refused.rest is None or not isinstance(refused.rest.value, dict):
            raise
        tree, faults = refused.rest, refused.faults
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        what = f"cannot be read: {reason}"
        raise Refused([Fault(Where(layer, name), "", what)]) from error
    _check_schema(tree)
    return Source(path, tree, faults)


def _check_schema(tree: Node) -> None:
    """Refuse a file of another form at once: its other faults would mislead."""
    schema = find(tree, ["schema"])
    if schema is tree or schema.value is None:
        return
    if type(schema.value) is not int or schema.value != SCHEMA:
        what = f"{describe(schema.value)} is not supported; this version uses {SCHEMA}"
        raise Refused([Fault(schema.where, "schema", what)])
