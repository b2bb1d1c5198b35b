"""Complaints of users of other caches and loaders, and the tests that prevent them.

Each complaint was found in the public issues of several tools: caches of file systems,
loaders that stream datasets, and libraries that are preloaded.
"""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

KEPT_AWAY = {
    "what a crash or Ctrl-C leaves blocks the next run": (
        "integration/test_agent_life.py::test_the_next_job_removes_the_leftovers_of_a_killed_one",
        "integration/test_agent_leftovers.py::test_leftover_whose_pid_was_reused_is_removed",
        "integration/test_stage.py::test_leftovers_of_a_killed_command_are_removed",
    ),
    "the cache grows past its limit and fills the disk": (
        "unit/test_stager_capacity.py::test_a_full_tier_exceeds_no_limit_and_the_file_is_retried",
        "integration/test_faults.py::test_a_tier_that_runs_full_leaves_the_bytes_right",
        "integration/test_large_faults.py::test_a_tier_that_is_full_after_half_a_file_frees_its_space",
    ),
    "a guard of free space disables the cache silently": (
        "unit/test_tiers.py::test_zeros_of_statvfs_mean_unknown_and_not_full",
        "unit/test_report.py::test_files_that_were_not_staged_are_explained",
    ),
    "stale data are served after the origin has changed": (
        "integration/test_agent_faults.py::test_an_origin_that_changed_since_the_scan_is_never_staged",
        "integration/test_agent_faults.py::test_files_changed_between_jobs_are_not_adopted",
        "integration/test_large_reads.py::test_a_file_changed_by_another_program_is_read_from_the_origin",
    ),
    "the cache is thrown away between jobs": (
        "integration/test_agent_faults.py::test_a_retained_tier_is_adopted_without_reading_the_origin",
        "integration/test_stage.py::test_a_later_job_adopts_staged_files_and_does_not_read_the_origin",
    ),
    "an old, huge cache makes the start slow": (
        "integration/test_agent_leftovers.py::test_agent_that_ends_at_once_has_removed_the_leftovers_of_a_dead_job",
    ),
    "directories of one user stop the jobs of another": (
        "unit/test_tiers.py::test_a_directory_is_made_private_whatever_the_umask",
        "integration/test_launcher_home.py::test_a_directory_made_by_another_user_is_skipped",
        "integration/test_launcher_home.py::test_a_lock_held_by_another_user_costs_a_second",
    ),
    "nobody can tell whether the cache is used, or its hit rate": (
        "unit/test_report.py::test_the_headline_states_coverage_share_and_bytes_read",
        "integration/test_report_truth.py::test_a_job_of_four_processes_on_two_nodes_reports_independently_counted_reads",
    ),
    "warming up says that it is done, and is not": (
        "integration/test_stage.py::test_an_unreadable_file_is_named_with_exit_status_1",
        "integration/test_retained.py::test_a_check_names_unstaged_files",
        "integration/test_retained.py::test_a_check_finds_a_copy_with_a_wrong_byte",
    ),
    "N nodes read the same bytes N times": (
        "integration/test_nodes_sharing.py::test_a_cold_file_requested_by_all_at_once_is_read_once",
        "integration/test_origin_once.py::test_the_origin_is_read_once_by_four_processes_in_three_epochs",
    ),
    "a dataset must be listed or indexed anew for each job": (
        "unit/test_catalog_saved.py::test_a_fresh_index_is_loaded_instead_of_scanning",
    ),
    "what lies on a mounted file system cannot be cached as it is": (
        "integration/test_programs.py::test_a_reading_program_produces_the_same_result",
    ),
    "it is not clear where files are put, and options are ignored": (
        "unit/test_cli_config.py::test_show_origin_prints_the_source_of_each_value",
        "unit/test_config_layers.py::test_first_file_of_the_search_order_is_used",
    ),
    "no command shows the cache or empties it": (
        "integration/test_retained.py::test_retained_copies_are_listed",
        "integration/test_retained.py::test_copies_are_evicted_once",
        "integration/test_agent_verbs.py::test_clean_removes_leftovers_of_dead_jobs_and_nothing_of_living_ones",
    ),
    "/dev/shm is used up, and programs die of SIGBUS": (
        "integration/test_agent_faults.py::test_ram_replicas_take_and_keep_no_memory_that_the_job_needs",
        "integration/test_memory_limit.py::test_ram_replicas_are_freed_before_the_program_is_killed",
        "unit/test_tiers.py::test_a_share_of_ram_is_one_of_the_memory_limit_not_of_the_tmpfs",
    ),
    "programs that fork hang": (
        "integration/test_shim_situations.py::test_threads_and_forks_see_no_wrong_byte_and_leak_nothing",
        "integration/test_shim_situations.py::test_vfork_child_does_not_wait",
        "integration/test_shim_programs.py::test_program_reads_right_from_a_zeroed_origin",
    ),
    "two preloaded libraries work in one order only": (
        "integration/test_shim_situations.py::test_jemalloc_beside_the_shim_works",
        "unit/test_doctor.py::test_other_preloaded_libraries_are_named",
    ),
    "a preloaded library breaks containers": (
        "integration/test_containers.py::test_program_in_a_container_of_bwrap_is_served_with_the_output_of_env",
        "integration/test_containers.py::test_program_in_a_container_with_musl_is_served",
        "integration/test_build.py::test_the_shim_has_no_lazily_allocated_thread_storage",
    ),
    "calls that are not supported fail": (
        "integration/test_programs.py::test_a_library_of_formats_reads_the_same",
        "integration/test_programs.py::test_a_listing_program_produces_the_same_result",
    ),
}

DO_NOT_APPLY = {
    "a FUSE mount is slow, or hangs in containers": "Monarch mounts nothing.",
    "benchmarks are fooled by the page cache": "This concerns measurements: both sides "
    "of each ratio of scripts/bench run side by side over the same origin.",
}


@pytest.mark.parametrize("complaint", KEPT_AWAY)
def test_each_complaint_has_existing_tests(complaint: str) -> None:
    for test in KEPT_AWAY[complaint]:
        file, _, name = test.partition("::")
        tree = ast.parse((TESTS / file).read_text())
        assert name in {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef)
        }, test


def test_all_complaints_are_answered_once() -> None:
    assert len(KEPT_AWAY) + len(DO_NOT_APPLY) == 21
    assert not KEPT_AWAY.keys() & DO_NOT_APPLY.keys()
