"""The selector: FanStore's worked example, held against brute force, and monotone."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from monarch.selector import (
    Candidate,
    Choice,
    Link,
    Load,
    Rule,
    choose,
    draw,
    sample_bytes,
)
from monarch.selector.rules import PLAIN, RATIO_DOUBT

FANSTORE = (
    Candidate("lz4", 1.8, 0.3e-3),
    Candidate("lzsse8", 2.4, 0.5e-3),
    Candidate("zstd", 3.5, 4.0e-3),
    Candidate("xz", 4.8, 30e-3),
)
TRIES = 10_000


def fanstore_load(compute_s: float = 0.0) -> Load:
    """The worked example; the dataset is too large for any ratio."""
    return Load(
        batch_files=32,
        file_bytes=0.512e6,
        threads=4,
        dataset_bytes=1e15,
        budget_bytes=1e12,
        tier=Link(4000, 500e6),
        compute_s=compute_s,
    )


@pytest.mark.parametrize(
    ("compute_s", "rule", "chosen"),
    [
        (0.0, Rule.SYNC, "lzsse8"),
        (0.060, Rule.ASYNC, "zstd"),
        (0.300, Rule.ASYNC, "xz"),
        (0.010, Rule.ASYNC, "lzsse8"),  # plain files take longer than that anyway
    ],
)
def test_selector_matches_the_worked_example(
    compute_s: float, rule: Rule, chosen: str
) -> None:
    choice = choose(fanstore_load(compute_s), FANSTORE, rule)

    assert choice.chosen.candidate.name == chosen
    times = [round(1e3 * one.batch_s, 1) for one in choice.judged]
    assert times == [32.8, 20.6, 17.7, 41.4, 248.0]  # plain files, then the codecs


def random_case(rng: random.Random) -> tuple[Load, list[Candidate], Rule]:
    """A load and codecs, many of which are equal, useless or slow."""
    ratios = [1.0, 1.5, 2.0, rng.uniform(1, 15)]
    candidates = [
        Candidate(
            f"codec{number}",
            rng.choice(ratios),
            rng.choice([0.0, 1e-4, 10 ** rng.uniform(-6, -1)]),
            rng.choice([1e6, 5e7, 1e9]),
        )
        for number in range(rng.randint(0, 12))
    ]
    dataset = 10 ** rng.uniform(6, 13)
    origin = Link(10 ** rng.uniform(1, 5), 10 ** rng.uniform(6, 10))
    remote = (rng.random(), Link(10 ** rng.uniform(2, 5), 10 ** rng.uniform(7, 10)))
    load = Load(
        batch_files=rng.randint(1, 512),
        file_bytes=10 ** rng.uniform(2, 9),
        threads=rng.randint(1, 16),
        dataset_bytes=dataset,
        budget_bytes=dataset * rng.choice([0.05, 0.3, 0.9, 1.0, 3.0]),
        tier=Link(10 ** rng.uniform(2, 6), 10 ** rng.uniform(7, 10)),
        origin=rng.choice([None, origin]),
        remote=rng.choice([None, remote]),
        compute_s=rng.choice([0.0, 10 ** rng.uniform(-4, 1)]),
        tolerance=rng.choice([0.0, 0.05]),
        pack_bytes_per_s=rng.choice([0.0, 2e7]),
    )
    return load, candidates, rng.choice(list(Rule))


def io_s(load: Load, ratio: float, decode_s: float) -> float:
    """The time of a batch, written down a second time from the formula."""
    stored, files = load.file_bytes / ratio, load.batch_files
    held = min(1.0, load.budget_bytes * ratio / load.dataset_bytes)
    held = held if load.origin else 1.0
    share, net = load.remote or (0.0, load.tier)
    near, far, missing = files * (1 - share), files * share, files * (1 - held)
    near_s = max(near / load.tier.files_per_s, near * stored / load.tier.bytes_per_s)
    far_s = max(far / net.files_per_s, far * stored / net.bytes_per_s)
    total = held * (near_s + far_s + files * decode_s / load.threads)
    if load.origin:
        opens_s = missing / load.origin.files_per_s
        total += max(opens_s, missing * load.file_bytes / load.origin.bytes_per_s)
    return total


def brute_force(load: Load, candidates: Sequence[Candidate], rule: Rule) -> set[str]:
    """All names that no other feasible candidate beats: several if they are equal."""
    plain = io_s(load, 1.0, 0.0)
    limit = (1 + load.tolerance) * (
        plain if rule is Rule.SYNC else max(plain, load.compute_s)
    )
    feasible = [
        one
        for one in candidates
        if io_s(load, one.ratio, one.decode_s) <= limit
        and one.pack_bytes_per_s >= load.pack_bytes_per_s
    ]
    feasible.append(PLAIN)

    def held(one: Candidate) -> float:
        return min(1.0, load.budget_bytes * one.ratio / load.dataset_bytes)

    def missing(one: Candidate) -> float:
        sure = one.ratio if one is PLAIN else (1 - RATIO_DOUBT) * one.ratio
        return 1 - min(1.0, load.budget_bytes * sure / load.dataset_bytes)

    def time_s(one: Candidate) -> float:
        return io_s(load, one.ratio, one.decode_s)

    def beats(a: Candidate, b: Candidate) -> bool:
        if not np.isclose(missing(a), missing(b), rtol=1e-12, atol=1e-15):
            return missing(a) < missing(b)
        if not np.isclose(time_s(a), time_s(b), rtol=1e-9, atol=0):
            return time_s(a) < time_s(b)
        return a.decode_s < b.decode_s

    best = [a for a in feasible if not any(beats(b, a) for b in feasible)]

    def alike(edge: float, sure: Sequence[Candidate]) -> list[Candidate]:
        """What is read as fast, and would be taken without computation, too."""
        share = 1 + load.tolerance + edge
        sooner = share * min(time_s(best[0]), plain)
        found = [
            *sure,
            *(
                one
                for one in feasible
                if missing(one) <= share * missing(best[0]) + edge
                and held(one) >= (1 - load.tolerance - edge) * held(best[0])
                and time_s(one) <= sooner
            ),
        ]
        fastest_s = min(map(time_s, found))
        return [one for one in found if time_s(one) <= share * fastest_s]

    # A codec at the edge may be chosen or not.
    slowest = min(best, key=_pack)
    least = max(map(_pack, alike(-1e-9, [slowest])), default=_pack(slowest))
    return {one.name for one in alike(1e-9, best) if one.pack_bytes_per_s >= least}


def _pack(one: Candidate) -> float:
    return one.pack_bytes_per_s


def test_selector_equals_brute_force() -> None:
    rng = random.Random(13)
    for _ in range(TRIES):
        load, candidates, rule = random_case(rng)

        chosen = choose(load, candidates, rule).chosen.candidate.name

        assert chosen in brute_force(load, candidates, rule), (load, candidates, rule)


def ratio_of(choice: Choice) -> float:
    return choice.chosen.candidate.ratio


def test_more_computation_never_gives_a_lower_ratio() -> None:
    rng = random.Random(14)
    for _ in range(TRIES // 5):
        load, candidates, _ = random_case(rng)
        times = sorted(10 ** rng.uniform(-5, 2) for _ in range(4))
        loads = [replace(load, compute_s=time) for time in times]

        ratios = [ratio_of(choose(one, candidates, Rule.ASYNC)) for one in loads]

        assert ratios == sorted(ratios), (load, candidates, times)


def test_files_are_held_as_they_are_where_no_codec_is_fast_enough() -> None:
    slow = [Candidate("slow", 4.0, 10.0)]

    choice = choose(fanstore_load(), slow, Rule.SYNC)

    assert choice.chosen.candidate is PLAIN
    assert "staged in part" in choice.why


def test_reason_says_that_no_codec_holds_more() -> None:
    little = [Candidate("little", 1.02, 1e-6)]
    load = replace(fanstore_load(), spared_bytes=0.1e12, origin=Link(1000, 100e6))

    choice = choose(load, little, Rule.SYNC)

    assert choice.chosen.candidate is PLAIN
    assert choice.why == "no codec holds more; files are staged in part"


def test_a_codec_that_packs_too_slowly_is_not_chosen() -> None:
    load = fanstore_load()
    keeps_up = replace(load, pack_bytes_per_s=20e6)
    candidates = [
        Candidate("fast", 1.5, 1e-4, 100e6),
        Candidate("slow", 2.0, 1e-4, 2e6),
    ]

    assert choose(load, candidates, Rule.SYNC).chosen.candidate.name == "slow"
    assert choose(keeps_up, candidates, Rule.SYNC).chosen.candidate.name == "fast"


def test_a_dataset_that_fits_is_compressed_only_where_that_reads_faster() -> None:
    fits = replace(fanstore_load(), dataset_bytes=1e9)
    quick = replace(fits, tier=Link(1e6, 1e11))

    assert choose(fits, FANSTORE, Rule.SYNC).chosen.candidate.name == "lzsse8"
    assert choose(quick, FANSTORE, Rule.SYNC).chosen.candidate is PLAIN


def test_of_equal_codecs_the_fastest_to_pack_is_chosen() -> None:
    fits = replace(fanstore_load(), dataset_bytes=1e9, tolerance=0.05)
    candidates = [
        Candidate("small", 4.0, 1e-4, 20e6),
        Candidate("quick", 3.9, 1e-4, 300e6),
        Candidate("quicker", 3.6, 1e-4, 500e6),
    ]

    assert choose(fits, candidates, Rule.SYNC).chosen.candidate.name == "quick"
    exact = replace(fits, tolerance=0.0)
    assert choose(exact, candidates, Rule.SYNC).chosen.candidate.name == "small"
    full = replace(fits, budget_bytes=fits.dataset_bytes / 8)
    assert choose(full, candidates, Rule.SYNC).chosen.candidate.name == "quick"
    del candidates[1]
    assert choose(full, candidates, Rule.SYNC).chosen.candidate.name == "small"


# -- the sample ------------------------------------------------------------------------


def test_sample_represents_each_byte_alike() -> None:
    rng = np.random.default_rng(1)
    sizes = rng.integers(1, 5 << 20, 3000).astype(np.uint64)
    kinds = rng.integers(0, 3, len(sizes))

    sample = draw(sizes, 1 << 20, pieces=2000, seed=2)

    share = [
        float(sample.weights[kinds[sample.files] == kind].sum()) for kind in range(3)
    ]
    true = [float(sizes[kinds == kind].sum() / sizes.sum()) for kind in range(3)]
    assert np.allclose(share, true, atol=0.04)
    ends = sample.offsets + sample.lengths
    assert (ends <= sizes[sample.files]).all()
    assert (sample.lengths > 0).all()
    assert sample.lengths.max() <= 1 << 20
    assert np.isclose(sample.weights.sum(), 1)


@pytest.mark.parametrize("total", [8 << 20, 40 << 20, 250 << 20, 2 << 30, 100 << 30])
def test_sample_is_bounded_by_the_size_of_the_dataset(total: int) -> None:
    sizes = np.full(64, total // 64, np.uint64)

    sample = draw(sizes, 1 << 20)

    most = sample_bytes(total)
    assert most <= (total // 8 if total >= 128 << 20 else total // 100)
    assert most <= max(total // 100, 16 << 20)
    assert most <= 64 << 20
    assert sample.bytes <= most


def test_sample_has_whole_files_and_whole_pieces_of_larger_ones() -> None:
    rng = np.random.default_rng(2)
    sizes = rng.integers(1, 5 << 20, 500).astype(np.uint64)

    sample = draw(sizes, 1 << 20)

    whole = np.minimum(sizes[sample.files] - sample.offsets, 1 << 20)
    assert (sample.lengths == whole).all()
    assert (sample.offsets % (1 << 20) == 0).all()


def test_sample_has_each_size_and_each_directory_by_its_share() -> None:
    """Of files whose kinds have their own size or directory few are enough."""
    sizes = np.array([60_000, 240_000] * 2000, np.uint64)
    folders = np.arange(4000) // 1000
    for seed in range(20):
        sample = draw(sizes, 1 << 20, pieces=40, seed=seed)

        large = sample.weights[sizes[sample.files] == 240_000].sum()
        assert large == pytest.approx(0.8, abs=0.03)
        shares = np.bincount(folders[sample.files], sample.weights)
        assert np.allclose(shares, 0.25, atol=0.06)


def test_sample_of_the_same_files_is_the_same() -> None:
    sizes = np.random.default_rng(4).integers(1, 1 << 22, 900).astype(np.uint64)

    one, other = (draw(sizes, 1 << 20, seed=900) for _ in range(2))

    assert (one.files == other.files).all()
    assert (one.offsets == other.offsets).all()


def test_sample_of_nothing_is_empty() -> None:
    assert len(draw(np.zeros(5, np.uint64), 1 << 20)) == 0
    assert len(draw(np.zeros(0, np.uint64), 1 << 20)) == 0
