"""Fixtures of the unit tests."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from monarch.config import Loaded, RunOptions, files, load
from monarch.errors import ConfigError
from support.sourcetree import ROOT

# A machine that is busy with other tests makes an example slow, not wrong.
settings.register_profile("monarch", deadline=None)
settings.load_profile("monarch")


@pytest.fixture
def site_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's own configuration, which is absent unless a test writes it."""
    path = tmp_path / "etc.yaml"
    monkeypatch.setattr(files, "SITE_FILE", path)
    return path


@pytest.fixture
def load_text(tmp_path: Path, site_file: Path) -> Callable[..., Loaded]:
    """Load a configuration text as `job.yaml`, with an environment and options."""

    def load_it(
        text: str = "", environ: Mapping[str, str] | None = None, **options: Any
    ) -> Loaded:
        (tmp_path / "job.yaml").write_text(text)
        return load(RunOptions(config="job.yaml", **options), environ or {}, tmp_path)

    return load_it


@pytest.fixture
def refusal(load_text: Callable[..., Loaded]) -> Callable[..., tuple[str, ...]]:
    """Load as `load_text` does what must be refused, and return the lines."""

    def refuse(*args: Any, **options: Any) -> tuple[str, ...]:
        with pytest.raises(ConfigError) as refused:
            load_text(*args, **options)
        assert str(refused.value) == "\n".join(refused.value.lines)
        return refused.value.lines

    return refuse


@pytest.fixture(scope="module")
def at_the_root() -> Iterator[None]:
    """Let tests name the project's files by their paths in it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        yield
