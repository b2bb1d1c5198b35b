"""Tests of configs/: the examples agree with the code."""

from pathlib import Path

import pytest
import yaml

from monarch.config import Config, RunOptions, load
from monarch.config import files as config_files
from monarch.config.overrides import read_value
from monarch.config.template import config_text, default_text, value_text
from monarch.config.tree import Layer, Where, plain
from monarch.units import SizeKind

CONFIGS = Path(__file__).parents[2] / "configs"
EXAMPLES = sorted(CONFIGS.glob("*.yaml"))
HERE = Where(Layer.OPTION)
ENVIRON = {
    "DATASET": "/pfs/dataset",
    "SLURM_TMPDIR": "/local/job",
}


@pytest.fixture
def load_example(tmp_path, monkeypatch):
    monkeypatch.setattr(config_files, "SITE_FILE", tmp_path / "absent")

    def load_file(path):
        return load(RunOptions(config=str(path)), ENVIRON, tmp_path)

    return load_file


def test_default_yaml_equals_the_defaults_of_the_code(load_example):
    assert load_example(CONFIGS / "default.yaml").config == Config()


def test_default_yaml_is_what_config_init_writes():
    assert (CONFIGS / "default.yaml").read_text() == default_text()


def test_default_yaml_names_every_value(load_example):
    loaded = load_example(CONFIGS / "default.yaml")

    layers = {key: where.layer for key, where in loaded.origins.items()}
    assert set(layers.values()) == {Layer.FILE}


def test_commented_dataset_of_default_yaml_is_valid(load_example, tmp_path):
    text = default_text().replace("datasets: []\n# datasets:", "datasets:")
    lines = [line.removeprefix("# ") for line in text.splitlines()]
    start, end = lines.index("datasets:"), lines.index("tiers:")
    section = [line for line in lines[start:end] if not line.startswith("The tiers of")]
    path = tmp_path / "d.yaml"
    path.write_text("\n".join(section))

    (dataset,) = load_example(path).config.datasets

    assert dataset.path == "/pfs/imagenet"
    assert dataset.never[:3] == ("*.lock", "*-lock", "lock.mdb")
    assert "*.sqlite*" in dataset.never


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_valid_and_states_its_purpose(load_example, path):
    loaded = load_example(path)

    assert loaded.files == (path,)
    assert path.read_text().startswith("# ")
    assert all(len(line) <= 88 for line in path.read_text().splitlines())


def test_slurm_example_uses_the_directory_of_the_job(load_example):
    config = load_example(CONFIGS / "slurm.yaml").config

    assert [tier.path for tier in config.tiers] == ["/dev/shm", "/local/job"]
    assert config.tiers[1].capacity.kind is SizeKind.ALL_BUT
    assert config.report.file is not None
    assert config.report.file.endswith("/monarch-%j.json")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_shown_configuration_can_be_loaded_again(load_example, path, tmp_path):
    config = load_example(path).config
    shown = tmp_path / "shown.yaml"

    shown.write_text(config_text(config))

    assert load_example(shown).config == config


TEXTS = (
    "a b|no|true|7|7.5|null|~||a: b|#x|${X}|x,y|- x|é|[x]|*.lock|**|'q'|\"|a\\b|%x|@x"
)
TEXTS += "| x |x #y|-|0700|2026-11-21|1_000|12:30|=|<<"


@pytest.mark.parametrize("value", [*TEXTS.split("|"), 7, True, None, 1.5])
def test_value_as_text_reads_as_the_same_value(value):
    text = value_text(value)

    assert yaml.safe_load(f"x: {text}") == {"x": value}
    assert yaml.safe_load(f"x: {value_text([value, value])}") == {"x": [value, value]}
    assert plain(read_value(text, HERE)) == value
    assert plain(read_value(value_text([value]), HERE)) == [value]
