"""Codecs: their names, their results, and damaged pieces."""

import json
import os
import random
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from monarch.agent.codec_choice import Files, candidates, decide, needed_rate
from monarch.cli import main
from monarch.codec import CANDIDATES, TOLERANCE, Codec
from monarch.native import Coder, codec_library
from monarch.origins import trials as origin_trials
from monarch.origins.trials import Pieces, read_pieces, try_codecs
from monarch.selector import Link, Load, Rule, Sample

NAMES = ["lz4", "lz4hc:9", "zstd:3", "zstd:-5", "lz4+shuffle2", "zstd:1+shuffle8"]
LENGTHS = [1, 2, 7, 4095, 4096, 100_003, 1 << 20]

needs_libraries = pytest.mark.skipif(
    None in (codec_library(Codec.parse("lz4")), codec_library(Codec.parse("zstd:1"))),
    reason="no libzstd or no liblz4",
)


def numbers(length: int) -> bytes:
    """Numbers of 4 bytes that grow slowly: all codecs shrink them."""
    return np.arange(length // 4 + 1, dtype="<u4").tobytes()[:length]


def room(length: int) -> np.ndarray:
    return np.empty(length, np.uint8)


def packed_by(coder: Coder, piece: bytes) -> bytes:
    out = room(len(piece) + len(piece) // 200 + 4096)
    size = coder.pack(piece, out)
    assert size is not None
    return out[:size].tobytes()


@pytest.mark.parametrize("codec", CANDIDATES, ids=str)
def test_name_of_a_codec_is_read_back(codec: Codec) -> None:
    assert Codec.parse(str(codec)) == codec


@pytest.mark.parametrize(
    "text",
    [
        *("", "gzip", "zstd", "zstd:0", "zstd:23", "zstd:-51", "lz4:3", "lz4hc"),
        *("lz4hc:13", "none:1", "none+shuffle4", "lz4+dict", "zstd:3+shuffle3"),
        *("zstd:3 fast", "zstd:3+dict+shuffle4", "ZSTD:3", "zstd:\uff11"),
    ],
)
def test_name_that_is_no_codec_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="zstd:LEVEL"):
        Codec.parse(text)


@needs_libraries
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", LENGTHS)
def test_piece_survives_a_round_trip(name: str, length: int) -> None:
    for piece in (numbers(length), os.urandom(length), bytes(length)):
        with Coder(Codec.parse(name)) as coder:
            packed = packed_by(coder, piece)
            plain = room(length)

            assert coder.unpack(packed, plain)
            assert plain.tobytes() == piece


@needs_libraries
def test_piece_that_does_not_shrink_is_reported() -> None:
    for name in NAMES:
        with Coder(Codec.parse(name)) as coder:
            assert coder.pack(os.urandom(100_000), room(95_000)) is None


@needs_libraries
@pytest.mark.parametrize("name", NAMES)
def test_damaged_piece_or_wrong_length_is_refused(name: str) -> None:
    piece = numbers(100_000)
    with Coder(Codec.parse(name)) as coder:
        packed = packed_by(coder, piece)

        assert not coder.unpack(packed[:-1], room(len(piece)))
        assert not coder.unpack(packed, room(len(piece) + 1))
        assert not coder.unpack(b"", room(len(piece)))


@needs_libraries
@pytest.mark.parametrize("name", NAMES)
def test_piece_that_is_larger_than_declared_writes_nothing_behind(name: str) -> None:
    with Coder(Codec.parse(name)) as coder:
        bomb = packed_by(coder, bytes(64 << 20))
        memory = np.full(8192, 7, np.uint8)

        assert not coder.unpack(bomb, memory[:4096])
        assert (memory[4096:] == 7).all()


@needs_libraries
def test_zstd_of_python_reads_what_the_data_plane_packs() -> None:
    piece = numbers(300_000)
    with Coder(Codec.parse("zstd:3")) as coder:
        packed = packed_by(coder, piece)

    unpacked = zstandard.ZstdDecompressor().decompress(packed, len(piece))
    assert unpacked == piece


@needs_libraries
def test_small_similar_pieces_share_a_dictionary() -> None:
    rng = np.random.default_rng(5)
    pieces = [
        json.dumps(
            {"image": f"n{n:08}.jpg", "label": n % 10, "box": [n, n + 5]}
        ).encode()
        for n in rng.integers(0, 1 << 20, 2000).tolist()
    ]
    found = Pieces(pieces, np.full(len(pieces), 1 / len(pieces)), 0, 0.1)

    trials, missing = try_codecs(found, map(Codec.parse, ("zstd:3", "zstd:3+dict")), 1)

    assert not missing
    alone, shared = trials
    assert shared.ratio > 1.5 * alone.ratio


@needs_libraries
def test_dictionary_of_another_codec_cannot_unpack() -> None:
    pieces = [b'{"image": "n%08d.jpg", "label": %d}' % (n, n % 10) for n in range(3000)]
    dictionary = zstandard.train_dictionary(4096, list(pieces)).as_bytes()
    codec = Codec.parse("zstd:3+dict")
    with Coder(codec, dictionary) as coder:
        packed = packed_by(coder, pieces[0])
        assert coder.unpack(packed, room(len(pieces[0])))
    with Coder(codec) as coder:
        assert not coder.unpack(packed, room(len(pieces[0])))


@pytest.mark.parametrize("hung", [1, origin_trials.READERS])
def test_origin_that_hangs_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, hung: int
) -> None:
    """What other readers have got by then is taken, if there are others."""
    count, end = 40, threading.Event()

    def read(path: bytes, offset: int, length: int) -> bytes:
        if offset < hung:
            end.wait()
        return bytes(length)

    class Paths:
        def path(self, file: int) -> bytes:
            return b"%d" % file

    monkeypatch.setattr(origin_trials, "_read", read)
    numbers, weights = np.arange(count), np.full(count, 1 / count)
    sample = Sample(numbers, numbers, np.full(count, 100), weights)
    inventory: Any = Paths()
    began = time.monotonic()
    pieces = read_pieces(inventory, sample)
    took_s = time.monotonic() - began
    end.set()

    assert took_s < origin_trials.READ_MAX_S + 1
    assert len(pieces) == (count - hung if hung == 1 else 0)
    assert pieces.files.tolist() == numbers[count - len(pieces) :].tolist()
    assert pieces.failed == 0


@needs_libraries
def test_trial_estimates_the_ratio_of_the_whole_dataset() -> None:
    rng = np.random.default_rng(3)
    halves = [numbers(1 << 18), rng.bytes(1 << 18)] * 16
    found = Pieces(halves, np.full(32, 1 / 32), 0, 0.1)

    trial = try_codecs(found, [Codec.parse("zstd:1+shuffle4")], 10)[0][0]

    with Coder(Codec.parse("zstd:1+shuffle4")) as coder:
        size = len(packed_by(coder, halves[0]))
    assert trial.ratio == pytest.approx(2 / (1 + size / (1 << 18)), rel=1e-6)
    assert trial.raw_share == pytest.approx(0.5)
    assert trial.pieces == 32


@needs_libraries
def test_codecs_are_tried_on_the_same_pieces() -> None:
    """Ratios of different pieces could not be compared."""
    rng = np.random.default_rng(6)
    pieces = [numbers(1 << 20)] * 2 + [rng.bytes(1 << 20)] * 6
    found = Pieces(pieces, np.full(8, 1 / 8), 0, 0.1)

    trials, _ = try_codecs(found, CANDIDATES)

    assert {one.pieces for one in trials if not one.codec.dictionary} == {8}


KINDS = {
    "text": lambda rng: json.dumps(rng.integers(1 << 20, size=9000).tolist()).encode(),
    "volumes": lambda rng: (
        np.cumsum(rng.normal(size=50_000)).round(1).astype("<f4").tobytes()
    ),
    "images": lambda rng: rng.bytes(110_000),
    "mixed": lambda rng: (
        numbers(60_000) + rng.bytes(40_000) + json.dumps(list(range(9000))).encode()
    ),
}


@needs_libraries
@pytest.mark.parametrize("kind", KINDS)
def test_choice_is_the_same_when_rates_wobble_by_a_fifth(kind: str) -> None:
    rng = np.random.default_rng(7)
    pieces = [KINDS[kind](rng) for _ in range(40)]
    found = Pieces(pieces, np.full(40, 1 / 40), 0, 0.1)
    size = found.total_bytes / 40
    files = Files(size, found.total_bytes, 1.0, 1.0)
    trials, _ = try_codecs(found, candidates(files, dictionaries=False))
    names = set()
    for _ in range(200):
        wobble = partial(rng.uniform, 0.8, 1.2)
        origin, tier = Link(9e3 * wobble(), 1e8 * wobble()), (1e5, 4e9)
        load = Load(
            *(32, size, 2, 1e9, 4e8, Link(*(rate * wobble() for rate in tier))),
            origin=origin,
            tolerance=TOLERANCE,
            pack_bytes_per_s=needed_rate(origin.bytes_per_s, 2),
        )
        measured = [
            replace(
                one,
                pack_bytes_per_s=one.pack_bytes_per_s * wobble(),
                unpack_s_per_byte=one.unpack_s_per_byte * wobble(),
            )
            for one in trials
        ]
        names.add(decide(load, measured, Rule.SYNC).chosen.candidate.name)

    assert len(names) == 1
    assert (names == {"plain"}) == (kind == "images")


@pytest.mark.parametrize(
    ("page_ratio", "share", "as_is", "tries_none"),
    [
        (0.25, 1.0, "plain", True),
        (0.97, 1.0, "plain", False),
        (0.25, 0.5, "none", False),  # another rule packs the tier in any case
    ],
)
def test_files_are_packed_uncompressed_only_where_whole_pages_waste_much(
    page_ratio: float, share: float, as_is: str, tries_none: bool
) -> None:
    files = Files(1000.0, 10**6, share, page_ratio)

    tried = candidates(files, dictionaries=True)

    assert files.as_is.name == as_is
    assert (Codec() in tried) == tries_none


# -- monarch codecs --------------------------------------------------------------------


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "dataset"
    folder.mkdir()
    for number in range(80):
        (folder / f"{number}.bin").write_bytes(numbers(50_000))
    return folder


Capture = pytest.CaptureFixture[str]


def codecs(capsys: Capture, *words: object, code: int = 0) -> str:
    assert main(["codecs", *map(str, words)]) == code
    told = capsys.readouterr()
    return told.err if code else told.out


@needs_libraries
def test_codecs_prints_what_each_codec_makes_of_a_dataset(
    dataset: Path, capsys: Capture
) -> None:
    tier = f"ssd:200kB:{dataset.parent}"
    words = ("--tier", tier, "--codec", "zstd:19", "--json")

    answer = json.loads(codecs(capsys, dataset, *words))

    rows = {row["codec"]: row for row in answer["tiers"][0]["codecs"]}
    assert answer["files"] == 80
    assert 0 < answer["tiers"][0]["sample"]["bytes"] <= answer["bytes"] // 100
    assert 0.9 < rows["plain"]["ratio"] < 1, "as they fill whole pages"
    assert rows["zstd:19"]["ratio"] > 1
    assert rows["zstd:1+shuffle4"]["ratio"] > 2 * rows["lz4"]["ratio"]
    best = answer["tiers"][0]["chosen"]
    most = max(row["held"] for row in rows.values() if row["feasible"]["sync"])
    assert rows[best]["held"] >= 0.95 * most


def write_incompressible(folder: Path, end: str, count: int) -> None:
    """Write files of 50 kB."""
    rng = random.Random(1)
    for number in range(count):
        (folder / f"{number}.{end}").write_bytes(rng.randbytes(50_000))


def test_codecs_advises_against_packing_files_that_do_not_shrink(
    tmp_path: Path, capsys: Capture
) -> None:
    write_incompressible(tmp_path, "bin", 40)

    text = codecs(capsys, tmp_path, "--tier", "ram:1MiB")

    assert "chosen: plain: nothing shrinks; files are staged in part" in text


@needs_libraries
def test_codecs_tries_none_on_files_for_which_a_rule_names_one(
    dataset: Path, capsys: Capture
) -> None:
    write_incompressible(dataset, "jpg", 80)
    tiers = dataset.parent / "tiers.yaml"
    rule = "{files: ['*.jpg'], codec: none}"
    tiers.write_text(
        f"datasets: [{{path: {dataset}}}]\n"
        "tiers:\n"
        f"- {{name: ram, kind: ram, capacity: 1MB, codec: auto, codecs: [{rule}]}}\n"
    )

    answer = json.loads(codecs(capsys, "-c", tiers, "--json"))
    text = codecs(capsys, "-c", tiers)

    [tier] = answer["tiers"]
    assert (tier["ruled_files"], tier["ruled_bytes"]) == (80, 80 * 50_000)
    assert tier["sample"]["pieces"], "of the others alone"
    ratios = {row["codec"]: row["ratio"] for row in tier["codecs"]}
    assert ratios["zstd:1+shuffle4"] > 3, "of all files it would be less than 2"
    assert (
        "  80 files, 3.8 MiB, have another codec by its rules and do not count" in text
    )
    assert max(map(len, text.splitlines())) <= 80


def test_codecs_reports_that_all_files_have_a_rule(
    dataset: Path, capsys: Capture
) -> None:
    rule = 'tiers[0].codecs=[{files: ["*.bin"], codec: none}]'
    words = ("--set", "tiers[0].codec=none", "--set", rule)

    told = codecs(capsys, dataset, *words, code=2)

    assert told.startswith("monarch: tiers[0].codecs: "), "before anything is read"


def test_codecs_without_files_asks_for_a_path_or_a_configuration(
    capsys: Capture,
) -> None:
    assert "give PATH, or -c FILE" in codecs(capsys, code=2)


@needs_libraries
def test_codecs_as_text_has_at_most_80_columns(dataset: Path, capsys: Capture) -> None:
    text = codecs(capsys, dataset, "--compute", "60ms")

    assert max(map(len, text.splitlines())) <= 80
    assert "chosen: " in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--codec", "gzip"], "--codec: 'gzip' is not valid"),
        (["--compute", "soon"], "--compute: 'soon' is not valid"),
        (["--batch", "0"], "--batch"),
        (["--tier", "ram:100TiB"], "tiers[0].capacity: 100TiB is larger than"),
        (["-c", "nothing.yaml"], "nothing.yaml: cannot be read"),
    ],
)
def test_codecs_refuses_bad_input(
    dataset: Path, capsys: Capture, words: list[str], told: str
) -> None:
    [line] = codecs(capsys, dataset, *words, code=2).splitlines()

    assert told in line, "and nothing is read before"


def test_codecs_reports_that_a_folder_has_no_bytes(
    tmp_path: Path, capsys: Capture
) -> None:
    assert "no file with bytes" in codecs(capsys, tmp_path, code=2)


# -- by the names of files -------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (
            "codecs: [{files: ['*.a'], codec: lz4}]",
            "tiers[0].codecs: files with other codecs are packed, and this tier is not",
        ),
        (
            "codec: lz4, codecs: [{files: ['*.a'], codec: auto}]",
            "tiers[0].codecs[0].codec: 'auto' is not valid; use none, lz4",
        ),
        (
            "codec: lz4, codecs: [{files: [], codec: none}]",
            "tiers[0].codecs[0].files: an empty list is not valid",
        ),
    ],
)
def test_invalid_rules_are_refused(refusal, keys: str, line: str) -> None:
    [told] = refusal(f"tiers: [{{name: r, kind: ram, {keys}}}]")

    assert line in told
