"""`monarch config`: check, show and create a configuration."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from monarch.config import (
    Config,
    Loaded,
    RunOptions,
    current_directory,
    digest,
    json_schema,
    leaves,
    load,
    to_json,
)
from monarch.config.files import LOCAL_FILE
from monarch.config.template import config_text, default_text, value_text
from monarch.config.tree import key_text
from monarch.errors import ConfigError, UsageError


@click.group("config")
def config() -> None:
    """Check, show or create a configuration.

    \b
    Precedence, highest first:
      options; variables such as MONARCH_STAGING_FILL__CONCURRENCY=8;
      the first of: --config FILE, $MONARCH_STAGING_CONFIG, ./monarch.yaml,
        $XDG_CONFIG_HOME/monarch-staging/config.yaml;
      the site's: $MONARCH_STAGING_SITE_CONFIG, /etc/monarch-staging/config.yaml;
      the defaults.
    """


@config.command("check", short_help="Report every mistake in a configuration.")
@click.argument("file", required=False)
@click.option("-c", "--config", metavar="FILE", help="The same as FILE.")
@click.pass_context
def check(ctx: click.Context, file: str | None, config: str | None) -> None:
    """Report every mistake in FILE, or in the effective configuration.

    A dataset that cannot be read on this machine is one. Of a tier in a doubtful
    place there is a warning: the nodes of a job may have other directories.
    """
    from monarch.cli.terminal import print_line

    if file and config:
        raise UsageError("name one FILE, with -c or without")
    try:
        loaded = _load(RunOptions(config=file or config))
    except ConfigError as error:
        for line in error.lines:
            print_line(line, err=False)
        ctx.exit(1)
    if faults := _dataset_faults(loaded):
        for line in faults:
            print_line(line, err=False)
        ctx.exit(1)
    for doubt in _doubts(loaded.config):
        print_line(f"warning: {doubt}", err=False)
    for line in _links(loaded.config):
        print_line(line, err=False)
    names = ", ".join(map(str, loaded.files)) or "no file, only defaults"
    click.echo(f"ok: {names}")


@config.command("show")
@click.option(
    "-c", "--config", metavar="FILE", help="Read the configuration from FILE."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set one value."
)
@click.option("--data", multiple=True, metavar="PATH", help="As in `monarch run`.")
@click.option(
    "--tier",
    "tiers",
    multiple=True,
    metavar="KIND:CAPACITY[:PATH]",
    help="As in `monarch run`.",
)
@click.option("--origin", is_flag=True, help="Print the source of each value.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(origin: bool, as_json: bool, **given: Any) -> None:
    """Print the effective configuration."""
    loaded = _load(RunOptions(**given))
    if as_json:
        click.echo(json.dumps(_as_json(loaded, origin), indent=2))
    elif origin:
        click.echo("\n".join(_origin_lines(loaded)))
    else:
        click.echo(config_text(loaded.config), nl=False)


@config.command("init", short_help="Write a commented configuration.")
@click.argument("path", required=False, default=LOCAL_FILE)
def init(path: str) -> None:
    """Write a commented configuration to PATH (monarch.yaml); `-` prints it."""
    if path == "-":
        click.echo(default_text(), nl=False)
        return
    try:
        with Path(path).open("x", encoding="utf-8") as file:
            file.write(default_text())
    except FileExistsError:
        raise UsageError(f"{path} already exists") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    click.echo(f"wrote {path}")


@config.command("schema")
def schema() -> None:
    """Print the JSON Schema of a configuration file."""
    click.echo(json.dumps(json_schema(), indent=2))


def _load(options: RunOptions) -> Loaded:
    return load(options, os.environ, current_directory())


def _dataset_faults(loaded: Loaded) -> list[str]:
    """Return a line for each dataset that is not here, with the place of its path."""
    from monarch.origins.named import name_roots
    from monarch.tiers import check_root

    faults = []
    for number, dataset in enumerate(loaded.config.datasets):
        key = f"datasets[{number}].path"
        try:
            for named in name_roots([dataset], ()):
                check_root(key, Path(named.path))
        except UsageError as error:
            text = str(error).replace("datasets[0].path", key)
            faults.append(f"{loaded.origins[key]}: {text}")
    if not faults:
        try:
            name_roots(loaded.config.datasets, ())
        except UsageError as error:
            faults.append(str(error))
    return faults


def _links(config: Config) -> list[str]:
    """Return a line on the links of each dataset, if they are known."""
    from monarch.config.request import index_directory
    from monarch.origins.index_text import known_links
    from monarch.origins.named import name_roots
    from monarch.origins.saved_indexes import SavedIndexes

    saved = SavedIndexes(index_directory(os.environ))
    return [
        f"{', '.join(named.given)}: {text}"
        for named in name_roots(config.datasets, ())
        if (text := known_links(named.path, named.patterns, saved))
    ]


def _doubts(config: Config) -> list[str]:
    """Return the doubts about the tiers on this machine."""
    from monarch.tiers import TierSettings, doubts_about

    tiers = [TierSettings.of(number, tier) for number, tier in enumerate(config.tiers)]
    return doubts_about(tiers, [Path(dataset.path) for dataset in config.datasets])


def _as_json(loaded: Loaded, origin: bool) -> Mapping[str, Any]:
    values: dict[str, Any] = json.loads(to_json(loaded.config))
    if not origin:
        return values
    origins = {key: where.described() for key, where in loaded.origins.items()}
    return {"config": values, "origins": origins, "digest": digest(loaded.config)}


def _origin_lines(loaded: Loaded) -> list[str]:
    values = loaded.config.model_dump(mode="json", by_alias=True)
    rows = [
        (f"{key_text(path)}: {value_text(value)}", loaded.origins[key_text(path)])
        for path, value in leaves(values)
    ]
    width = max(len(text) for text, _ in rows)
    return [f"{text:<{width}}  # {where.described()}" for text, where in rows]
