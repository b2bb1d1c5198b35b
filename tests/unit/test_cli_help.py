"""Tests of `monarch help` and of the pages that are made from the code."""

import shutil
import subprocess
from pathlib import Path

import click
import pytest

from monarch.cli import VERBS, main, manual, pages
from monarch.cli.command_tree import verbs
from monarch.cli.help import REFERENCE, entries, page, show, topics
from monarch.cli.schema_page import schema_page
from monarch.config import RunOptions, leaves, load
from monarch.config.tree import key_text
from monarch.report.format import WIDTH

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "monarch" / "pages"
BASH = PAGES / "share/bash-completion/completions/monarch"
ZSH = PAGES / "share/zsh/site-functions/_monarch"
FISH = PAGES / "share/fish/vendor_completions.d/monarch.fish"

SCHEMA = {
    "properties": {
        "headline": {"$ref": "#/$defs/Headline", "description": "What comes first."},
        "nodes": {
            "description": "The nodes.",
            "type": "array",
            "items": {"properties": {"name": {"type": "string", "description": "N."}}},
        },
        "schema": {"const": 2, "description": "The version."},
    },
    "$defs": {
        "Headline": {
            "required": ["opens"],
            "properties": {
                "opens": {"type": "integer", "description": "All opens."},
                "ready": {"type": ["number", "null"], "description": "A share."},
                "saved": {
                    "description": "Time saved.",
                    "properties": {"seconds": {"description": "S.", "default": 3}},
                },
                "mode": {"enum": ["a", "b", "c"], "default": "b", "description": "M."},
            },
        }
    },
}


def test_checked_in_pages_match_the_code():
    wanted = pages.texts()
    checked_in = {
        str(path.relative_to(PAGES)): path.read_text()
        for path in [*(PAGES / "share").rglob("*"), *(PAGES / name for name in wanted)]
        if path.is_file()
    }

    assert checked_in == wanted, "run `python -m monarch.cli.pages`"


def test_topics_with_entries_match_the_code():
    assert set(REFERENCE) == set(pages.REFERENCE)


def test_writing_pages_removes_stale_ones_and_no_topic(tmp_path):
    stale = tmp_path / "share/man/man1/monarch-old.1"
    stale.parent.mkdir(parents=True)
    stale.touch()
    (tmp_path / "topic.md").write_text("# By hand\n")

    pages.write(tmp_path)

    assert not stale.exists()
    assert (tmp_path / "topic.md").read_text() == "# By hand\n"
    assert (tmp_path / "configuration.md").read_text() == page("configuration")


def test_every_configuration_key_has_an_entry():
    config = load(RunOptions(), {}, Path("/")).config
    values = config.model_dump(mode="json", by_alias=True)
    keys = [key_text(path).replace("[0]", "") for path, _ in leaves(values)]

    assert {"fill.concurrency", "tiers.capacity"} <= set(keys)
    assert [key for key in keys if not list(entries(key))] == []


def test_page_of_a_schema_has_each_leaf_with_its_values_and_default():
    text = schema_page("Report", "Of a job.", SCHEMA)

    assert text.startswith(
        "# Report\n\nOf a job.\n\n## headline\n\nWhat comes first.\n"
    )
    assert "- `headline.opens` (whole number; required): All opens." in text
    assert "- `headline.ready` (number or null): A share." in text
    assert "- `headline.saved.seconds` (default `3`): S." in text
    assert "- `headline.mode` (`a`, `b` or `c`; default `b`): M." in text
    assert "## nodes\n\nThe nodes.\n\n- `nodes[].name`: N." in text
    assert "## schema\n\n- `schema` (`2`): The version." in text


# -- monarch help ------------------------------------------------------------------


def test_help_without_a_topic_lists_verbs_and_pages(capsys):
    assert main(["help"]) == 0

    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in (*VERBS, *topics()))
    assert "configuration    Every key of a configuration file" in shown
    assert "environments     Staging a Python environment" in shown


def test_help_on_a_verb_is_what_its_option_prints(capsys):
    assert main(["help", "config", "show"]) == 0
    shown = capsys.readouterr().out
    assert main(["config", "show", "--help"]) == 0

    assert shown == capsys.readouterr().out


def test_help_on_a_page_prints_it_whole(capsys):
    assert main(["help", "metrics"]) == 0

    assert capsys.readouterr().out == (PAGES / "metrics.md").read_text()


def test_help_on_a_verb_that_is_a_topic_too_prints_both(capsys):
    assert main(["help", "report"]) == 0

    shown = capsys.readouterr().out
    assert shown.startswith("```text\nUsage: monarch report [OPTIONS] [FILE]\n")
    assert shown.endswith((PAGES / "report.md").read_text())


def test_help_on_a_terminal_is_formatted_and_has_no_links_to_pages(monkeypatch, capsys):
    text = "# A\n\nSee [the page](semantics.md#links), `code` and https://x.org/y.\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")

    show(text)

    shown = capsys.readouterr().out
    assert "\x1b[" in shown
    assert "See the page, " in shown
    assert "semantics.md" not in shown
    assert "`" not in shown
    assert "https://x.org/y" in shown


def test_a_long_page_on_a_terminal_goes_through_the_pager(monkeypatch):
    paged: list[str] = []
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("click.echo_via_pager", paged.append)

    show("\n\n".join(["A paragraph."] * 200))

    assert paged[0].count("A paragraph.") == 200


@pytest.mark.parametrize("topic", ["tiers.capacity", "tiers[].capacity"])
def test_help_on_a_key_prints_its_entry_only(capsys, topic):
    assert main(["help", topic]) == 0

    shown = capsys.readouterr().out
    assert shown.startswith("- `tiers[].capacity` (default `auto`): ")
    assert shown.count("- `") == 1


def test_help_on_a_key_leaves_out_the_tables_of_topics(capsys):
    assert main(["help", "peers.mode"]) == 0

    assert capsys.readouterr().out.startswith("- `peers.mode` (`off`, `partition`, ")


def test_help_on_a_metric_is_its_row_of_the_table_as_a_sentence(capsys):
    assert main(["help", "monarch_dataset_bytes"]) == 0

    shown = capsys.readouterr().out
    assert shown == "- `monarch_dataset_bytes` (gauge, bytes): in the datasets\n"


def test_help_on_a_section_prints_all_its_keys(capsys):
    assert main(["help", "cold_open"]) == 0

    shown = capsys.readouterr().out
    assert "`cold_open.mode`" in shown
    assert "`cold_open.timeout`" in shown
    assert "`fill" not in shown


@pytest.mark.parametrize("key", ["tiers[0].codec", "tiers[].codec", "tiers.codec"])
def test_help_on_a_key_of_a_list_takes_an_index_or_none(capsys, key):
    assert main(["help", key]) == 0
    assert capsys.readouterr().out.startswith("- `tiers[].codec`")


def test_help_on_the_last_part_of_a_key_prints_its_entries(capsys):
    assert main(["help", "exclude"]) == 0

    shown = capsys.readouterr().out
    assert "`datasets[].exclude`" in shown
    assert "`programs.exclude`" in shown


@pytest.mark.parametrize(
    ("word", "topic"),
    [("slurm", "cluster"), ("resume", "loader"), ("pass-through", "report")],
)
def test_help_on_a_word_names_the_pages_that_mention_it(capsys, word, topic):
    assert main(["help", word]) == 0

    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith(f"No page is called {word!r}.")
    assert any(line.startswith(f"- {topic}: ") for line in lines)


def test_help_on_an_unknown_word_names_the_nearest_ones(capsys):
    assert main(["help", "cold_open.wait_mx"]) == 2

    assert capsys.readouterr().err == (
        "monarch: no help on 'cold_open.wait_mx'; did you mean 'cold_open.wait_max'?; "
        "see `monarch help`\n"
    )


# -- manual pages ------------------------------------------------------------------


def test_manual_pages_have_every_option_of_every_verb():
    for verb in verbs():
        text = manual.pages()[f"monarch-{verb.words[0]}.1"].replace("\\", "")
        assert all(name in text for option in verb.options for name in option.names)


@pytest.mark.skipif(not shutil.which("groff"), reason="needs the program groff")
@pytest.mark.parametrize("name", sorted(manual.pages()))
def test_manual_page_is_right_for_roff(name):
    path = PAGES / "share/man/man1" / name
    words = ["groff", "-ww", "-z", "-man", "-Tutf8", str(path)]

    done = subprocess.run(words, check=True, capture_output=True, text=True)

    assert done.stderr == ""


def test_text_that_roff_would_obey_is_escaped():
    command = click.Command("x", help="first\n\n.so /etc/passwd\n\nC:\\new 'q'")

    text = manual._page(("version",), command)

    assert "\n\\&.so /etc/passwd\n" in text
    assert "C:\\enew 'q'" in text


# -- completion --------------------------------------------------------------------


def bash(*words: str) -> str:
    """What bash offers for the last of some words, or what it is told to do."""
    script = f"""
        compopt() {{ echo "compopt $*"; }}
        source {BASH}
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _monarch
        printf '%s\n' "${{COMPREPLY[@]}}" | sort -u
    """
    command = ["bash", "--norc", "-c", script, "bash", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stderr == ""
    return " ".join(done.stdout.splitlines()).strip()


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("sto", "stop"),
        ("run --da", "--data"),
        ("run --data ", "compopt -o default"),
        ("run --config = ", "compopt -o default"),
        ("run --job ", ""),
        ("run --data /x -- basenam", "basename"),
        ("run --data /x basenam", "basename"),
        ("run -- ls --data", "compopt -o default"),
        ("plan --mode ", "auto partition replicate"),
        ("plan --mode = par", "partition"),
        ("config sh", "show"),
        ("config show --ori", "--origin"),
        ("report ", "compopt -o default"),
    ],
)
def test_bash_completes(line: str, offered: str) -> None:
    assert bash("monarch", *line.split(" ")) == offered


@pytest.mark.skipif(not shutil.which("zsh"), reason="needs zsh")
def test_zsh_reads_the_function():
    subprocess.run(["zsh", "-n", ZSH], check=True)


@pytest.mark.skipif(not shutil.which("fish"), reason="needs fish")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("sto", ["stop"]),
        ("run --da", ["--data"]),
        ("plan --mode p", ["partition"]),
        ("config show --ori", ["--origin"]),
        ("run -- cat pyproject", ["pyproject.toml"]),
        ("run -- sleep --mo", []),
    ],
)
def test_fish_completes(line: str, offered: list[str]) -> None:
    script = f"source {FISH}; complete -C 'monarch {line}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )

    assert done.stderr == ""
    assert [one.partition("\t")[0] for one in done.stdout.splitlines()] == offered


def test_completion_knows_every_option_of_every_verb():
    texts = [path.read_text() for path in (BASH, ZSH)]
    fish = FISH.read_text()

    for verb in verbs():
        for name in (name for option in verb.options for name in option.names):
            assert all(name in text for text in texts), f"{verb.name} {name}"
            flag = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
            here = f"-n '__monarch_in {verb.name}'"
            lines = [line for line in fish.splitlines() if here in line]
            assert any(flag in line.split(" -d ")[0] for line in lines)


@pytest.mark.parametrize("verb", VERBS)
def test_help_on_a_verb_fits_a_terminal(capsys, verb):
    assert main([verb, "--help"]) == 0

    assert max(map(len, capsys.readouterr().out.splitlines())) <= WIDTH
