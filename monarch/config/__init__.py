"""Configuration: its schema, the sources of values and their precedence."""

from monarch.config.load import (
    Loaded,
    current_directory,
    from_json,
    leaves,
    load,
    require_datasets,
    run_directory,
)
from monarch.config.overrides import RunOptions, parse_tier
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
