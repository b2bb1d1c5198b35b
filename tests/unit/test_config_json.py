"""Tests of monarch.config: the configuration as JSON, and its schema."""

import pytest

from monarch.config import (
    Config,
    digest,
    from_json,
    json_schema,
    leaves,
    to_json,
)
from monarch.config.tree import key_path, key_text
from monarch.errors import ConfigError


def test_configuration_round_trips_as_json(load_text):
    config = load_text(
        "datasets: [{path: /a}]\n"
        "tiers: [{name: r, kind: ram, capacity: 12.5%, headroom: 1GiB}]\n"
        "fill: {bandwidth: 200MB/s}\nretain: 90min\ncold_open: {timeout: 1.25s}"
    ).config

    text = to_json(config)

    assert from_json(text) == config
    assert to_json(from_json(text)) == text
    assert digest(from_json(text)) == digest(config)
    assert len(digest(config)) == 16
    assert digest(config) != digest(Config())


def test_broken_json_is_a_configuration_error():
    with pytest.raises(ConfigError):
        from_json("{")
    with pytest.raises(ConfigError, match=r"fill\.concurrency: 0 is not valid; use "):
        from_json('{"fill": {"concurrency": 0}}')


def test_json_keeps_a_dollar_that_is_no_variable_any_more(load_text):
    config = load_text("datasets: [{path: '/a/${X}'}]", {"X": "${Y}"}).config

    assert config.datasets[0].path == "/a/${Y}"
    assert from_json(to_json(config)) == config


def test_json_schema_describes_every_key():
    schema = json_schema()

    assert set(schema["properties"]) == set(Config().model_dump(by_alias=True))
    assert schema["additionalProperties"] is False
    wait_max = schema["$defs"]["ColdOpen"]["properties"]["wait_max"]
    assert wait_max["anyOf"] == [{"type": "string", "examples": ["8MiB"]}, {"const": 0}]
    assert wait_max["default"] == "8MiB"
    for definition in [schema, *schema["$defs"].values()]:
        for name, form in definition["properties"].items():
            assert "description" in form or "$ref" in form, name


def test_configuration_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Config().fill.concurrency = 9


def test_leaves_have_the_paths_that_options_take():
    values = Config().model_dump(mode="json", by_alias=True)

    for path, _ in leaves(values):
        assert key_path(key_text(path)) == path
    assert key_path("tiers.0.capacity") == ("tiers", 0, "capacity")
