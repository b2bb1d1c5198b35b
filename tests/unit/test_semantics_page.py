"""The page on semantics: a test shows each word of its fine print."""

import ast
import re

from support.documents import PAGES, ROOT

TESTS = ROOT / "tests"
PAGE = PAGES / "semantics.md"
GROUPS_MIN = 8
LINES_MAX = 2
# Sentences, or parts of them, shown by tests of other topics. All others are paragraphs
# of the docstrings of tests in tests/semantics/test_fine_print*.py.
ELSEWHERE = {
    "programs started without staging after a warning": [
        "integration/test_launcher_failure.py::test_agent_that_cannot_start_is_one_warning",
    ],
    "A program that changes more than some thousand files on a dataset's file "
    "system before indexing ends lets the root pass through": [
        "integration/test_late_attach.py::"
        "test_more_changes_than_the_table_holds_let_the_root_pass_through",
    ],
    "as does, on overlays and FUSE, a file with a new inode number": [
        "integration/test_late_attach.py::"
        "test_file_with_a_new_inode_lets_its_root_pass_through",
    ],
    "On overlays and FUSE, a write whose path the kernel does not report lets the "
    "whole root pass through": [
        "integration/test_unknown_names.py::"
        "test_write_that_identity_cannot_resolve_lets_the_root_pass",
    ],
    "On overlays and FUSE, the origin lists directories after the first change of "
    "a file in a dataset": [
        "integration/test_directories.py::"
        "test_a_directory_that_may_differ_is_the_origins",
    ],
    "Processes with other mounts than the agent ask the same at each open and "
    "stat through a link, in datasets with links that leave them": [
        "property/test_adversary.py::test_every_name_shows_what_the_kernel_shows",
    ],
    "A node on which links lead to other files than on the first node, or "
    "nowhere, works alone": [
        "integration/test_nodes_links.py::"
        "test_a_node_with_other_targets_works_alone_and_reports_it",
    ],
    "On overlays and FUSE, a file with several names is read from the origin": [
        "integration/test_unknown_names.py::"
        "test_file_with_several_names_is_the_origins_where_inodes_may_change",
    ],
    "Where a tier does not support O_DIRECT (tmpfs before Linux 6.6), a Replica "
    "is opened without it": [
        "integration/test_shim_situations.py::"
        "test_direct_open_is_served_by_a_tier_without_o_direct",
    ],
    "In a container without /proc, a process cannot compare its rights with the "
    "agent's, and reads the origin": [
        "integration/test_containers.py::"
        "test_inactive_program_in_a_container_without_proc_is_reported",
    ],
    "In another user namespace (rootless containers), a process is served if the "
    "agent has no capabilities and the number of groups is the agent's": [
        "integration/test_shim_rights.py::"
        "test_process_in_another_user_namespace_is_served_with_equal_rights_only",
    ],
    "With --index, directories and links are compared with the dataset at the start": [
        "unit/test_catalog_saved.py::test_a_changed_directory_is_stale_and_named",
        "unit/test_catalog_saved.py::"
        "test_a_link_that_changed_in_the_second_of_the_scan_is_noticed",
    ],
    "files when they are copied or one by one beside the job. Until then a stat "
    "of a file is the origin's": [
        "integration/test_index_command.py::"
        "test_a_file_that_changed_in_place_since_is_shown_as_it_is",
        "integration/test_provisional.py::"
        "test_file_not_yet_compared_in_this_job_is_read_from_the_origin",
        "integration/test_late_start.py::"
        "test_files_of_an_index_are_compared_beside_the_job",
    ],
    "After its agent has ended, a program reads the origin (after it died, files "
    "without a complete copy), and marks for the job's next agent as soon as it runs": [
        "integration/test_agents_in_turn.py::"
        "test_writes_are_seen_beside_the_next_agent",
    ],
    "A file that such a program opened or mapped for writing before is outside "
    "the job until the program opens or changes another file": [
        "integration/test_agents_in_turn.py::"
        "test_file_that_is_open_for_writing_is_seen_by_the_next_call",
    ],
    "Changes by path, after its agent has ended, of a process without a free "
    "descriptor": [
        "integration/test_agents_in_turn.py::"
        "test_changes_of_a_program_without_a_free_descriptor_are_not_seen",
    ],
    "A program that it starts then treats an inherited Replica of the old agent "
    "as its own file: writes to it are lost": [
        "integration/test_agent_leftovers.py::"
        "test_program_started_after_its_agent_ended_recognises_no_replicas",
    ],
    "Children of a program whose agent has ended, if they do not keep its "
    "environment, until the next agent starts": [
        "integration/test_agents_in_turn.py::"
        "test_child_without_its_environment_is_not_seen_between_two_agents",
    ],
    "A root that hangs delays only itself": [
        "integration/test_hung_parts.py::"
        "test_a_hung_root_delays_no_open_of_another_root",
    ],
    "A tier that fails or hangs is no longer used; its files are read from the "
    "origin or staged in another": [
        "integration/test_hung_parts.py::"
        "test_a_tier_that_fails_is_withdrawn_and_its_files_are_staged_elsewhere",
    ],
    "A name with an impossible size, time or inode (a time after 2262, an inode "
    "0) is left to the origin": [
        "integration/test_one_bad_part.py::"
        "test_files_with_absurd_times_are_left_to_the_origin_and_the_rest_is_staged",
        "unit/test_scan_absurd.py::test_an_absurd_value_leaves_one_file_to_the_origin",
    ],
    "With retain, a copy is recognised by path, inode, size and times, not by "
    "content: another image mounted at the same place with equal values is served "
    "the old bytes": [
        "integration/test_hazards.py::"
        "test_a_retained_copy_is_recognised_by_its_identity_not_by_its_content",
        "integration/test_agent_faults.py::"
        "test_files_changed_between_jobs_are_not_adopted",
    ],
    "Run monarch clean --retained before you mount such an image": [
        "integration/test_agent_verbs.py::"
        "test_clean_removes_retained_copies_only_on_request",
    ],
    "The monarch run that waits for the report ends by the signal that ended the "
    "program": [
        "integration/test_launcher_exit.py::test_death_by_signal_is_that_of_the_program",
    ],
    "but its wait status reports no core dump: the program's core is the only one": [
        "integration/test_launcher_limits.py::test_the_only_core_is_the_programs",
    ],
}


def plain(text: str) -> str:
    """A text without marks, the width of its lines, and its last stop."""
    return " ".join(text.replace("`", "").split()).rstrip(".").lower()


def items() -> list[str]:
    """The limits that the page lists, with the lines that they take."""
    text = PAGE.read_text().partition("\n## Fine print\n")[2]
    return re.findall(r"^- (.+(?:\n  .+)*)$", text, re.MULTILINE)


def fine_print() -> list[str]:
    """The sentences of the fine print, as they are listed."""
    return [plain(item) for item in items()]


def shown() -> list[str]:
    """What tests say that they show of it, the longest first."""
    files = sorted((TESTS / "semantics").glob("test_fine_print*.py"))
    docstrings = [
        ast.get_docstring(node)
        for file in files
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    told = [part for text in docstrings if text for part in text.split("\n\n")]
    parts = {plain(text) for text in (*told, *ELSEWHERE)}
    return sorted(parts, key=len, reverse=True)


def test_each_word_of_the_fine_print_is_shown_by_a_test() -> None:
    sentences = fine_print()

    assert len(sentences) > 50
    for sentence in sentences:
        left = sentence
        for part in shown():
            left = left.replace(part, "")
        assert not re.search(r"\w", left), f"no test shows: {left}"


def test_each_text_that_a_test_shows_is_in_the_fine_print() -> None:
    text = "\n".join(fine_print())

    assert [part for part in shown() if part not in text] == []


def test_each_test_that_shows_a_part_of_the_fine_print_is_there() -> None:
    for place in (place for places in ELSEWHERE.values() for place in places):
        file, name = place.split("::")
        assert f"def {name}(" in (TESTS / file).read_text(), place


def test_the_fine_print_is_grouped_into_short_limits() -> None:
    headings = re.findall(r"^### ", PAGE.read_text(), re.MULTILINE)

    assert len(headings) >= GROUPS_MIN
    assert [one for one in items() if len(one.splitlines()) > LINES_MAX] == []
