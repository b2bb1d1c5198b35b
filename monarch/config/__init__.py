"""Configuration: its schema, the sources of values and their precedence.

Names are imported on first use: the validation takes long to import, and an agent gets
values that another process has validated.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from monarch.config.request import current_directory, run_directory

if TYPE_CHECKING:
    from monarch.config.loading import (
        Loaded,
        from_json,
        leaves,
        load,
        load_request,
        require_datasets,
    )
    from monarch.config.overrides import parse_tier
    from monarch.config.run_options import RunOptions, parse_run_argv
    from monarch.config.schema import (
        Agent,
        Catalog,
        ColdOpen,
        Config,
        Dataset,
        Fill,
        Log,
        Peers,
        Programs,
        Report,
        Tier,
        digest,
        json_schema,
        to_json,
    )
    from monarch.config.tree import Layer, Where

_PLACES = {
    "loading": (
        *("Loaded", "from_json", "leaves", "load", "load_request"),
        "require_datasets",
    ),
    "overrides": ("parse_tier",),
    "run_options": ("RunOptions", "parse_run_argv"),
    "schema": (
        *("Agent", "Catalog", "ColdOpen", "Config", "Dataset", "Fill", "Log", "Peers"),
        *("Programs", "Report", "Tier", "digest", "json_schema", "to_json"),
    ),
    "tree": ("Layer", "Where"),
}

__all__ = [
    "Agent",
    "Catalog",
    "ColdOpen",
    "Config",
    "Dataset",
    "Fill",
    "Layer",
    "Loaded",
    "Log",
    "Peers",
    "Programs",
    "Report",
    "RunOptions",
    "Tier",
    "Where",
    "current_directory",
    "digest",
    "from_json",
    "json_schema",
    "leaves",
    "load",
    "load_request",
    "parse_run_argv",
    "parse_tier",
    "require_datasets",
    "run_directory",
    "to_json",
]


def __getattr__(name: str) -> Any:
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f"monarch.config.{module}"), name)
    raise AttributeError(f"module 'monarch.config' has no attribute {name!r}")
