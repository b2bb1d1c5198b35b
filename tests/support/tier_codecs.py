"""Runs tests of plain Tiers with packed ones: `pytest --codec zstd:1` all of them.

Agents run in an interpreter that gives the first Tier of each configuration the codec,
wherever the configuration may have one; what a test configures itself stays, and so do
Tiers that outlive their job.
"""

import runpy
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

PYTHON = "MONARCH_STAGING_PYTHON"
PLAIN = "plain"
PACKED = "zstd:1"
IN_BOTH_MODES = (
    "integration/test_large_reads.py::"
    "test_waiting_readers_are_served_when_a_file_becomes_whole",
    "integration/test_nodes_faults.py::test_copies_on_several_nodes_outlive_the_others",
    "integration/test_nodes_report.py::"
    "test_the_report_of_a_job_agrees_with_the_counts_of_the_origin",
    "integration/test_nodes_report.py::test_two_nodes_report_the_same_about_each_other",
    "integration/test_nodes_sharing.py::"
    "test_a_cold_file_requested_by_all_at_once_is_read_once",
    "integration/test_nodes_sharing.py::"
    "test_a_node_whose_programs_have_ended_serves_until_the_job_ends",
    "integration/test_origin_once.py",
    "integration/test_programs.py::test_a_library_of_formats_reads_the_same",
    "integration/test_unknown_names.py::"
    "test_moved_and_written_file_of_an_overlay_is_never_read_as_it_was",
    "semantics/test_semantics.py",
    "semantics/test_writes.py",
)
"""Of one node and of four: they run with packed Tiers, too, if no codec is given."""
PLAIN_ONLY = {
    "removes, counts or spoils Replicas that are files of their own": (
        "integration/test_agent_faults.py::test_a_removed_replica_is_staged_again",
        "integration/test_agent_faults.py::"
        "test_a_removed_tier_directory_is_survived_by_the_next_tier",
        "integration/test_agent_life.py::"
        "test_a_killed_agent_leaves_nothing_that_the_next_one_trusts",
        "integration/test_agents_in_turn.py::"
        "test_redirected_descriptor_of_a_lost_replica_is_the_origins_file",
        "integration/test_nodes_large.py::"
        "test_blocks_that_change_after_their_file_was_whole_reach_no_other_node",
        "integration/test_faults.py::"
        "test_a_removed_replica_is_read_from_the_origin_and_staged_again",
        "integration/test_faults.py::"
        "test_a_removed_tier_directory_leaves_the_bytes_right",
    ),
    "programs have files of the Tier open: of a packed one, decoded ones of the Pool": (
        "integration/test_hung_parts.py::"
        "test_a_tier_that_fails_is_withdrawn_and_its_files_are_staged_elsewhere[opens]",
        "integration/test_hung_parts.py::"
        "test_an_error_of_a_tier_under_an_open_file_reaches_the_program",
        "semantics/test_fine_print_places.py::test_errors_and_delays",
        "semantics/test_fine_print_places.py::test_noexec",
    ),
    "measures a full Tier by files that shrink, and a Pool that plain Tiers give": (
        "integration/test_hints.py::test_a_dataset_larger_than_the_tiers_is_read_ahead",
        "integration/test_hints.py::test_a_dataset_that_the_tiers_hold_needs_no_pool",
        "integration/test_hints.py::test_without_hints_the_tier_keeps_its_room",
        "integration/test_tier_limits.py::"
        "test_files_are_placed_in_the_first_tier_with_room_or_in_none",
    ),
    "links Replicas of other jobs: those of packed Tiers are not files": (
        "integration/test_sibling_jobs.py::test_three_jobs_at_once_read_the_origin_once",
        "integration/test_sibling_jobs.py::"
        "test_a_job_links_files_staged_by_another_one",
        "integration/test_sibling_jobs.py::"
        "test_a_file_of_another_identity_is_not_linked",
        "integration/test_sibling_jobs.py::test_a_job_links_large_files_of_another_one",
        "integration/test_sibling_jobs.py::"
        "test_jobs_that_fill_large_files_at_once_read_the_origin_once",
        "integration/test_sibling_jobs.py::"
        "test_a_large_file_of_another_identity_is_not_linked",
        "integration/test_sibling_space.py::"
        "test_the_space_of_files_that_are_linked_counts_as_free",
        "integration/test_sibling_space.py::test_list_shows_space_shared_by_jobs",
        "integration/test_sibling_space.py::"
        "test_plan_names_the_jobs_from_which_files_can_be_linked",
        "integration/test_sibling_space.py::"
        "test_a_large_file_is_linked_before_fill_reaches_it",
    ),
    "maps a part of a large File: a packed one shows the Origin there": (
        "integration/test_mappings.py::test_a_mapping_of_the_end_waits_for_the_end_only",
        "integration/test_mappings.py::test_mappings_behave_as_plain[mmap64]",
    ),
    "expects what Monarch prints for a job with a plain Tier": (
        "integration/test_first_use.py::test_tier_in_memory_is_not_doubtful",
        "integration/test_first_use.py::"
        "test_capacity_below_the_dataset_is_reported_at_the_start",
        "integration/test_large_model.py::"
        "test_each_byte_at_an_offset_of_many_is_read_once[no-room]",
        "integration/test_large_reads.py::"
        "test_a_tier_that_fills_up_in_mid_job_costs_only_time",
        "integration/test_packed_memory.py::"
        "test_pool_too_small_for_the_largest_file_is_reported",
        "integration/test_topics.py::test_examples_run_as_they_are[report.md]",
        "integration/test_topics.py::test_examples_run_as_they_are[performance.md]",
        "integration/test_agent_life.py::test_the_start_line_names_the_dataset_and_its_tier",
        "integration/test_first_use.py::"
        "test_lines_on_a_terminal_of_80_columns_end_between_words",
    ),
    "waits until a large File is one in the Tier: a packed one is read by Blocks": (
        "integration/test_large_reads.py::test_fill_completes_partly_read_files",
        "integration/test_programs_zeroed.py::"
        "test_programs_read_right_bytes_from_a_zeroed_origin",
        "semantics/test_large_files.py::test_large_file",
    ),
    "forges what peers send plain": (
        "integration/test_nodes_attacks.py::test_checksums_alone_do_not_stop_forgery",
    ),
}
"""Tests that have no meaning with packed Tiers, by the reason."""


def in_blocks(codec: str) -> int:
    """How many of a dataset with one large File are read by Blocks once all is staged:
    a packed Tier makes no file of it."""
    return int(codec != PLAIN)


def is_listed(nodeid: str, names: Iterable[str]) -> bool:
    """Whether a test, or its function or file, is among names below tests/."""
    name = nodeid.removeprefix("tests/")
    return any(name == one or name.startswith((f"{one}[", f"{one}::")) for one in names)


def reason_for_plain(nodeid: str) -> str:
    """Why a test needs plain Tiers; "" if it does not."""
    return _reason(nodeid, PLAIN_ONLY)


def _reason(nodeid: str, listed: Mapping[str, Iterable[str]]) -> str:
    for name in (PLAIN, PACKED):  # of a test that runs in both modes
        nodeid = nodeid.replace(f"[{name}-", "[").replace(f"-{name}]", "]")
        nodeid = nodeid.removesuffix(f"[{name}]")
    return next((why for why, names in listed.items() if is_listed(nodeid, names)), "")


def packing_python(folder: Path, codec: str) -> str:
    """The path of such an interpreter, made in a folder."""
    place = folder / f"python-{codec}"
    own = str(Path(__file__).resolve())
    # No shell: it would print its own errors in a missing working directory.
    lines = [
        f"#!{sys.executable} -I",
        "import runpy, sys",
        f"sys.argv[1:1] = [{codec!r}]",
    ]
    lines.append(f"runpy.run_path({own!r}, run_name='__main__')")
    place.write_text("\n".join(lines) + "\n")
    place.chmod(0o755)
    return str(place)


def pack(codec: str) -> None:
    """Let each configuration that is read have a packed Tier."""
    from monarch.config import loading
    from monarch.config.schema import Config
    from monarch.config.types import Environment
    from monarch.config.validation import conflicts

    validated = loading._Layers.validated

    def packed(layers: loading._Layers, environment: Environment) -> Config:
        config = validated(layers, environment)
        # test_packed_retained.py tests retained Tiers.
        if not config.tiers or config.tiers[0].codec != PLAIN or config.retain != "job":
            return config
        first = config.tiers[0].model_copy(update={"codec": codec})
        changed = config.model_copy(update={"tiers": (first, *config.tiers[1:])})
        return config if any(conflicts(changed)) else changed

    loading._Layers.validated = packed  # type: ignore[assignment, method-assign]


def main() -> None:
    """Run `CODEC ... -m monarch WORDS...`."""
    codec, *words = sys.argv[1:]
    module = words.index("-m") + 1
    sys.argv = words[module:]
    pack(codec)
    runpy.run_module(words[module], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
