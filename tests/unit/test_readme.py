"""What README promises of several nodes is tested, in the same words."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_row_about_several_nodes_is_a_test() -> None:
    section = (ROOT / "README.md").read_text().split("\n## Several nodes")[1]
    table = section.split("\n## ")[0].split("| what happens | test |")[1]
    rows = re.findall(r"^\| ([a-z ]+) \| `(test_\w+\.py)` \|$", table, re.MULTILINE)

    assert len(rows) > 10
    for words, file in rows:
        text = (ROOT / "tests" / "integration" / file).read_text()
        assert f"def test_{words.replace(' ', '_')}(" in text, words
