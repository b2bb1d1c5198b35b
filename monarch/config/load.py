"""Loads the configuration that holds for a run, or says all that is wrong with it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from monarch.config.conflicts import conflicts
from monarch.config.files import Source, read_sources
from monarch.config.options import RunOptions
from monarch.config.overrides import (
    Assignment,
    assign,
    default_tree,
    environment_assignments,
    environment_faults,
    join,
    option_assignments,
)
from monarch.config.schema import Config
from monarch.config.tree import (
    Fault,
    KeyPath,
    Layer,
    Node,
    Refused,
    Where,
    find,
    key_text,
    plain,
    plant,
)
from monarch.config.types import Surroundings
from monarch.config.validation import faults_of
from monarch.errors import ConfigError, UsageError


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, where each of its values comes from, and the files read."""

    config: Config
    origins: Mapping[str, Where]
    files: tuple[Path, ...]


def load(options: RunOptions, environ: Mapping[str, str], cwd: Path) -> Loaded:
    """Return the configuration that options, environment and files give together.

    Raises ConfigError with a line for every fault.
    """
    try:
        sources = read_sources(options, environ, cwd)
        gathering = _Gathering()
        gathering.add_files(sources)
        gathering.faults += environment_faults(environ)
        gathering.add(environment_assignments(environ))
        gathering.add(option_assignments(options, gathering.dataset_count()))
        config = gathering.validated(Surroundings(environ, cwd))
    except Refused as refused:
        raise ConfigError(tuple(map(str, refused.faults))) from None
    origins = {
        key_text(path): _origin(gathering.tree, path)
        for path, _ in leaves(config.model_dump(mode="json", by_alias=True))
    }
    return Loaded(config, origins, tuple(source.path for source in sources))


def current_directory() -> Path:
    """Return the directory in which relative paths begin; UsageError if it is gone."""
    try:
        return Path.cwd()
    except OSError as error:
        reason = f"cannot be used: {error.strerror}; go to another one first"
        raise UsageError(f"the working directory {reason}") from error


def run_directory() -> Path:
    """Return the same for `monarch run`, whose program may need none.

    Instead of one that is gone, it is one that nobody can make: as for the kernel, no
    relative path leads anywhere.
    """
    try:
        return Path.cwd()
    except OSError:
        return Path("/proc/the-removed-working-directory")


def require_datasets(config: Config) -> None:
    """Raise UsageError unless there is something to stage."""
    if not config.datasets:
        raise UsageError(
            "no dataset to stage: give --data PATH, or datasets in a configuration file"
        )


def from_json(text: str) -> Config:
    """Return the configuration that `to_json` wrote."""
    try:
        return Config.model_validate_json(text)
    except ValidationError as error:
        tree = plant({}, Where(Layer.FILE, "configuration"))
        lines = tuple(map(str, faults_of(error, tree)))
        raise ConfigError(lines) from None


def leaves(value: object, path: KeyPath = ()) -> Iterable[tuple[KeyPath, object]]:
    """Yield each value with its path; a list of plain values is one value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for number, item in enumerate(value):
            yield from leaves(item, (*path, number))
    else:
        yield path, value


class _Gathering:
    """The tree of all layers so far, and what was wrong on the way."""

    def __init__(self) -> None:
        self.tree = default_tree()
        self.faults: list[Fault] = []

    def add_files(self, sources: Iterable[Source]) -> None:
        """Lay each file over the tree."""
        for source in sources:
            self.tree = join(self.tree, source.tree)
            self.faults += source.faults

    def add(self, assignments: Iterable[Assignment]) -> None:
        """Set each value, up to a source that cannot be read."""
        try:
            for assignment in assignments:
                self._assign(assignment)
        except Refused as refused:
            self.faults += refused.faults

    def _assign(self, assignment: Assignment) -> None:
        try:
            self.tree = assign(self.tree, assignment)
        except Refused as refused:
            self.faults += refused.faults

    def dataset_count(self) -> int:
        """Return how many datasets there are."""
        datasets = find(self.tree, ["datasets"]).value
        return len(datasets) if isinstance(datasets, list) else 0

    def validated(self, surroundings: Surroundings) -> Config:
        """Return the configuration of the tree, or raise Refused with all faults."""
        config: Config | None = None
        faults = list(self.faults)
        try:
            config = Config.model_validate(plain(self.tree), context=surroundings)
        except ValidationError as error:
            faults += faults_of(error, self.tree)
        else:
            faults += [
                Fault(find(self.tree, path).where, key_text(path), text)
                for path, text in conflicts(config)
            ]
        if config is None or faults:
            raise Refused(sorted(faults, key=_reading_order))
        return config


def _reading_order(fault: Fault) -> tuple[int, str, int, int]:
    """Sort lines as somebody mends them: file by file, from the top to the end."""
    where = fault.where
    return list(Layer).index(where.layer), where.name, where.line, where.column


def _origin(tree: Node, path: KeyPath) -> Where:
    """Return where the value at `path` was given, which may be nowhere."""
    node = tree
    for part in path:
        below = find(node, [part])
        if below is node:
            return Where(Layer.DEFAULT)
        node = below
    return node.where
