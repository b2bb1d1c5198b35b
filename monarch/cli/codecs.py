"""`monarch codecs`: measures codecs on a dataset, and chooses one for each tier."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from monarch.cli.options import shared_options
from monarch.cli.terminal import print_line, print_parts
from monarch.codec import BATCH_FILES, TOLERANCE, Codec
from monarch.errors import UsageError
from monarch.report.format import Part, Table, many, percent
from monarch.units import format_size

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from monarch.agent.codec_choice import Files, Question, Space
    from monarch.catalog.inventory import Inventory
    from monarch.config import Config
    from monarch.config import Tier as TierSection
    from monarch.origins.trials import Pieces, Trial
    from monarch.selector import Candidate, Choice, Judged, Load
    from monarch.tiers import Tier

EPILOG = """\b
Examples:
  monarch codecs /pfs/imagenet
  monarch codecs /pfs/volumes --tier ssd:200GB:/local --batch 64
  monarch codecs /pfs/text --compute 60ms --codec zstd:19 --json
  monarch codecs -c tiers.yaml

A sample of whole files is read, of larger ones pieces of 1 MiB: a hundredth of the
bytes, of 128 MiB and more at least 16 MiB, at most 64 MiB, for 2 s. All codecs are
tried on it. `codec: auto` of a job chooses by the same sample and the same rule.
plain is a tier that is not packed: its files fill whole pages.
Nothing is staged.
"""
THREADS_MAX: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """The trials of codecs on the Files that have no codec by a rule.

    Attributes:
        pieces: the sample of these Files.
        missing: why other codecs could not be tried.
        files: these Files.
        ruled_files, ruled_bytes: the Files that have one, and their size.
    """

    pieces: Pieces
    trials: list[Trial]
    missing: dict[Codec, str]
    files: Files
    ruled_files: int
    ruled_bytes: int


def _codec(
    context: object, option: object, values: tuple[str, ...]
) -> tuple[Codec, ...]:
    """Parse the codecs of the command line."""
    del context, option
    codecs = []
    for text in values:
        try:
            codecs.append(Codec.parse(text))
        except ValueError as error:
            raise UsageError(f"--codec: {text!r} is not valid; use {error}") from None
    return tuple(codecs)


def _duration(context: object, option: object, text: str | None) -> float:
    """Parse a duration of the command line."""
    from monarch.units import UnitError, parse_duration

    del context, option
    try:
        return parse_duration(text) if text is not None else 0.0
    except UnitError as error:
        raise UsageError(f"--compute: {error}") from None


@click.command("codecs", epilog=EPILOG)
@click.argument("path", metavar="[PATH]", required=False)
@shared_options("config", "settings")
@click.option(
    "--tier",
    "tiers",
    multiple=True,
    metavar="KIND:CAPACITY[:PATH]",
    help="The tier that is to be packed, such as ssd:200GB:/local; replaces those of "
    "the configuration.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 1 << 20),
    metavar="N",
    default=BATCH_FILES,
    show_default=True,
    help="Number of files that the job reads for one iteration.",
)
@click.option(
    "--compute",
    "compute_s",
    metavar="DURATION",
    callback=_duration,
    help="How long the job computes in an iteration, while the next batch is read: "
    "60ms. Without it, reading and computing take turns.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, THREADS_MAX),
    metavar="N",
    help="Number of threads that decompress. Default: the processors of this node.",
)
@click.option(
    "--codec",
    "codecs",
    multiple=True,
    metavar="CODEC",
    callback=_codec,
    help="A codec to try too, such as zstd:19. May be given more than once.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def codecs(path: str | None, as_json: bool, threads: int | None, **asked: Any) -> None:
    """Measure how much codecs shrink the files below PATH, and choose one.

    A packed tier holds its files compressed. The codec is chosen that lets the tier
    hold most of the dataset while a batch takes no longer to read. Without PATH the
    files are those of the configured datasets; those for which `tiers[].codecs` names
    a codec do not count.
    """
    from monarch.agent.codec_choice import Question
    from monarch.catalog.inventory import Inventory
    from monarch.cli.plan import scanned_roots
    from monarch.native import CONSTANTS

    config = _load(path, asked)
    count = threads or len(os.sched_getaffinity(0))
    question = Question(asked["batch"], count, asked["compute_s"], asked["codecs"])
    inventory = Inventory(scanned_roots(config), CONSTANTS["EXTENT_BYTES"])
    if not inventory.total_bytes:
        where = path or "the configured datasets"
        raise UsageError(f"{where}: no file with bytes; name a dataset's directory")
    answer = _answer(inventory, config, question)
    if as_json:
        click.echo(json.dumps(answer, indent=1))
    else:
        print_parts(_parts(answer))


def _load(path: str | None, asked: dict[str, Any]) -> Config:
    from monarch.config import RunOptions, current_directory, load

    options = RunOptions(
        config=asked["config"],
        settings=asked["settings"],
        data=(path,) if path else (),
        tiers=asked["tiers"],
    )
    config = load(options, os.environ, current_directory()).config
    if not config.datasets:
        raise UsageError("no files to try: give PATH, or -c FILE with datasets")
    return config


def _answer(inventory: Inventory, config: Config, question: Question) -> dict[str, Any]:
    """Read a sample, try the codecs, and choose one for each Tier."""
    from monarch.agent.codec_choice import Space
    from monarch.tiers import give_to_pool, wanted_pool

    tiers = [_resolved(n, one) for n, one in enumerate(config.used_tiers)]
    give_to_pool(wanted_pool(config.peers.transit, tiers), tiers)
    spaces = [
        Space.of(tiers, number, alone=not config.hosts) for number in range(len(tiers))
    ]
    rules = [tuple(files for files, _ in tier.settings.codecs) for tier in tiers]
    ruled = {one: inventory.first_matches(one) > 0 for one in rules}
    for number, one in enumerate(rules):
        if not inventory.sizes[~ruled[one]].any():
            raise UsageError(
                f"tiers[{number}].codecs: they name a codec for all files; there is "
                "none to choose"
            )
    tried = {one: _try(inventory, ruled[one], question) for one in ruled}
    return {
        "files": len(inventory),
        "bytes": inventory.total_bytes,
        "batch_files": question.batch_files,
        "threads": question.processors,
        "compute_s": question.compute_s or None,
        "rule": question.rule.value,
        "tolerance": TOLERANCE,
        "tiers": [
            _choose(tier, space, tried[one], question)
            for tier, space, one in zip(tiers, spaces, rules, strict=True)
        ],
    }


def _resolved(number: int, section: TierSection) -> Tier:
    from monarch.tiers import TierSettings, open_tier

    tier = open_tier(TierSettings.of(number, section), "codecs")
    tier.resolve()
    return tier


def _try(
    inventory: Inventory, ruled: npt.NDArray[np.bool_], question: Question
) -> Tried:
    """Try the codecs on pieces of the Files for which no rule names one."""
    from monarch.agent.codec_choice import Files, are_small, candidates, read_sample
    from monarch.origins.trials import try_codecs

    print_line("monarch: reading a sample of the files ...")
    pieces = read_sample(inventory, ruled)
    if not len(pieces):
        raise UsageError("none of the files could be read; check their permissions")
    print_line(f"monarch: trying codecs on {many(len(pieces), 'pieces')} ...")
    files = Files.of(inventory, ruled)
    codecs = candidates(files, question.codecs, dictionaries=are_small(inventory))
    trials, missing = try_codecs(pieces, codecs)
    ruled_bytes = inventory.total_bytes - files.total_bytes
    return Tried(pieces, trials, missing, files, int(ruled.sum()), ruled_bytes)


def _choose(
    tier: Tier, space: Space, tried: Tried, question: Question
) -> dict[str, Any]:
    """Return the predictions for each codec in one Tier, and the choice."""
    from monarch.agent.codec_choice import decide
    from monarch.selector import Link
    from monarch.tiers.speed import measure_speed

    pieces = tried.pieces
    speed = Link(*measure_speed(tier.settings.path, tier.capacity_bytes))
    load = question.load(tried.files, space, speed, pieces)
    choice = decide(load, tried.trials, question.rule)
    return {
        "tier": tier.name,
        "capacity_bytes": tier.capacity_bytes,
        "ruled_files": tried.ruled_files,
        "ruled_bytes": tried.ruled_bytes,
        "sample": {
            "pieces": len(pieces),
            "bytes": pieces.total_bytes,
            "failed": pieces.failed,
            "read_s": pieces.read_s,
        },
        **_described(load, choice, tried.trials),
        "not_tried": {str(codec): why for codec, why in tried.missing.items()},
    }


def _row(load: Load, judged: Judged, measured: Candidate) -> dict[str, Any]:
    """Return one codec as JSON, as if all files were stored uncompressed."""
    batch_s = load.batch_s(measured)
    return {
        "codec": judged.candidate.name,
        "ratio": judged.candidate.ratio,
        "pack_bytes_per_s": None,
        "unpack_bytes_per_s": None,
        "raw_share": 1.0,
        "pieces": 0,
        "held": judged.held,
        "batch_sync_s": batch_s,
        "batch_async_s": max(0.0, batch_s - load.compute_s),
        "feasible": {rule.value: may for rule, may in judged.feasible.items()},
    }


def _described(load: Load, choice: Choice, trials: list[Trial]) -> dict[str, Any]:
    """Return the speed of a Tier, and its codecs, as JSON."""
    assert load.origin is not None
    as_is, *judged = choice.judged
    rows = [_row(load, as_is, as_is.candidate)]
    for trial, one in zip(trials, judged, strict=True):
        row = _row(load, one, trial.candidate(load.file_bytes))
        if trial.codec.method != "none":
            row["pack_bytes_per_s"] = trial.pack_bytes_per_s
        if trial.unpack_s_per_byte:
            row["unpack_bytes_per_s"] = 1 / trial.unpack_s_per_byte
        rows.append(row | {"raw_share": trial.raw_share, "pieces": trial.pieces})
    return {
        "tier_files_per_s": load.tier.files_per_s,
        "tier_bytes_per_s": load.tier.bytes_per_s,
        "origin_files_per_s": load.origin.files_per_s,
        "origin_bytes_per_s": load.origin.bytes_per_s,
        "needed_pack_bytes_per_s": load.pack_bytes_per_s,
        "codecs": rows,
        "chosen": choice.chosen.candidate.name,
        "why": choice.why,
    }


# -- as text ---------------------------------------------------------------------------


def _rate(bytes_per_s: float | None) -> str:
    return "-" if bytes_per_s is None else f"{bytes_per_s / 1e6:,.0f}"


def _table(tier: dict[str, Any], rule: str) -> Table:
    """Return the codecs of a Tier; the chosen one has a star."""
    rows = []
    for row in tier["codecs"]:
        star = "*" if row["codec"] == tier["chosen"] else ""
        times = [1e3 * row[f"batch_{kind}_s"] for kind in ("sync", "async")]
        rows.append(
            (
                f"{row['codec']}{star}",
                f"{row['ratio']:.2f}",
                _rate(row["pack_bytes_per_s"]),
                _rate(row["unpack_bytes_per_s"]),
                percent(row["held"]),
                *(f"{time:,.1f}" for time in times),
                "yes" if row["feasible"][rule] else "no",
            )
        )
    titles = ("codec", "ratio", "MB/s in", "out", "held", "sync ms", "async ms", "may")
    return Table(titles, (17, 7, 9, 11, 8, 9, 10, 6), tuple(rows))


def _tried_on(tier: dict[str, Any]) -> list[Part]:
    """Return the text on the sample, and on files that have a codec by a rule."""
    sample = tier["sample"]
    pieces, size = many(sample["pieces"], "pieces"), format_size(sample["bytes"])
    parts: list[Part] = [f"  tried on {pieces}, {size}"]
    if sample["failed"]:
        parts.append(f"  {many(sample['failed'], 'pieces')} could not be read")
    if tier["ruled_files"]:
        files, size = many(tier["ruled_files"], "files"), tier["ruled_bytes"]
        parts.append(
            f"  {files}, {format_size(size)}, have another codec by its rules and do "
            "not count"
        )
    return parts


def _parts(answer: dict[str, Any]) -> list[Part]:
    """Return the answer as text."""
    parts: list[Part] = [
        f"monarch: {many(answer['files'], 'files')}, {format_size(answer['bytes'])}"
    ]
    for tier in answer["tiers"]:
        parts += [
            "",
            f"tier {tier['tier']}: {format_size(tier['capacity_bytes'])}, reads "
            f"{_rate(tier['tier_bytes_per_s'])} MB/s and "
            f"{tier['tier_files_per_s']:,.0f} files/s; the origin delivers "
            f"{_rate(tier['origin_bytes_per_s'])} MB/s",
            *_tried_on(tier),
            _table(tier, answer["rule"]),
            f"chosen: {tier['chosen']}: {tier['why']}",
            *(f"not tried: {name}: {why}" for name, why in tier["not_tried"].items()),
        ]
    parts += [
        "",
        f"sync ms: reading a batch of {many(answer['batch_files'], 'files')}, with "
        f"{many(answer['threads'], 'threads')} that decompress. async ms: what "
        "--compute does not hide of it. may: it takes no longer than plain files"
        f"{' or the computation' if answer['compute_s'] else ''}, and packing keeps up "
        "with the origin beside programs.",
    ]
    return parts
