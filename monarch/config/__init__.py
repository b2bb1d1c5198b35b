"""Configuration: what may be set, where it is read from, and what holds."""

from monarch.config.dump import digest, json_schema, to_json
from monarch.config.load import (
    Loaded,
    current_directory,
    from_json,
    leaves,
    load,
    require_datasets,
    run_directory,
)
from monarch.config.options import RunOptions, parse_tier
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
)
from monarch.config.tree import Layer, Where

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
    "parse_tier",
    "require_datasets",
    "run_directory",
    "to_json",
]
