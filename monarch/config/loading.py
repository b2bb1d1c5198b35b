"""Loads the effective configuration of a run, or reports every fault in it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from monarch.config.files import Source, read_sources, user_file
from monarch.config.overrides import (
    Assignment,
    assign,
    default_tree,
    environment_assignments,
    environment_faults,
    join,
    option_assignments,
)
from monarch.config.request import Request, run_directory
from monarch.config.run_options import RunOptions
from monarch.config.schema import Config, to_json
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
    tree_of,
)
from monarch.config.types import Environment
from monarch.config.validation import conflicts, faults_of
from monarch.errors import ConfigError, MonarchError, UsageError


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, the place of each of its values, and the files read."""

    config: Config
    origins: Mapping[str, Where]
    files: tuple[Path, ...]


def load(options: RunOptions, environ: Mapping[str, str], cwd: Path) -> Loaded:
    """Return the effective configuration of options, environment and files.

    Raises ConfigError with one line for each fault.
    """
    try:
        sources = read_sources(options, environ, cwd)
        layers = _Layers()
        layers.add_files(sources)
        layers.faults += environment_faults(environ)
        layers.add(environment_assignments(environ))
        layers.add(option_assignments(options, layers.dataset_count()))
        config = layers.validated(Environment(environ, cwd))
    except Refused as refused:
        raise ConfigError(tuple(map(str, refused.faults))) from None
    origins = {
        key_text(path): _origin(layers.tree, path)
        for path, _ in leaves(config.model_dump(mode="json", by_alias=True))
    }
    return Loaded(config, origins, tuple(source.path for source in sources))


def load_request(
    options: RunOptions, command: Sequence[str], environ: Mapping[str, str]
) -> Request:
    """Return the request to an agent from the options of `monarch run`.

    Raises:
        UsageError: with one line for each value that is not valid.
    """
    here = run_directory()
    config = load(options, environ, here).config
    if command and options.job is not None and not config.datasets:
        # The job belongs to an agent that was started before, and may have ended.
        raise MonarchError(f"job {options.job} has no agent here, and no dataset")
    require_datasets(config)
    file = user_file(options, environ, here)
    return Request(
        config,
        to_json(config),
        tuple(command),
        options.quiet,
        None if file is None else here / file,
    )


def require_datasets(config: Config) -> None:
    """Raise UsageError if the configuration has no dataset."""
    if not config.datasets:
        raise UsageError(
            "no dataset to stage: give --data PATH, or datasets in a configuration file"
        )


def from_json(text: str) -> Config:
    """Return the configuration from the JSON of `to_json`."""
    try:
        return Config.model_validate_json(text)
    except ValidationError as error:
        tree = tree_of({}, Where(Layer.FILE, "configuration"))
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


class _Layers:
    """The merged tree of the layers so far, and the faults in them."""

    def __init__(self) -> None:
        self.tree = default_tree()
        self.faults: list[Fault] = []

    def add_files(self, sources: Iterable[Source]) -> None:
        """Merge each file into the tree."""
        for source in sources:
            self.tree = join(self.tree, source.tree)
            self.faults += source.faults

    def add(self, assignments: Iterable[Assignment]) -> None:
        """Set each value, up to the first source that cannot be read."""
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
        """Return the number of datasets."""
        datasets = find(self.tree, ["datasets"]).value
        return len(datasets) if isinstance(datasets, list) else 0

    def validated(self, environment: Environment) -> Config:
        """Return the validated configuration, or raise Refused with all faults."""
        config: Config | None = None
        faults = list(self.faults)
        try:
            config = Config.model_validate(plain(self.tree), context=environment)
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
    """Return the sort key of a fault: its layer, file, line and column."""
    where = fault.where
    return list(Layer).index(where.layer), where.name, where.line, where.column


def _origin(tree: Node, path: KeyPath) -> Where:
    """Return the place of the value at `path`; the default if it was not set."""
    node = tree
    for part in path:
        below = find(node, [part])
        if below is node:
            return Where(Layer.DEFAULT)
        node = below
    return node.where
