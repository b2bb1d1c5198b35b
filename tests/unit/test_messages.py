"""Every message that users see, in one place: messages.txt beside this file.

A reviewer reads that file, and its diff shows each change of a message. After a change:

    PYTHONPATH=tests python -m unit.test_messages

Texts of options, keys, metrics and report fields are on the generated pages instead.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "monarch"
SNAPSHOT = Path(__file__).with_name("messages.txt")
WORDS_MIN = 3

# Calls whose texts are not messages, or are on the generated pages.
ELSEWHERE = {
    *("option", "Field", "Section", "Metric", "Verb", "_gauge", "_counter", "command"),
    *("debug", "info", "exception", "compile", "findall", "execute", "_prepare"),
    *("basicConfig", "AssertionError"),
}
# Modules without messages: they write code, pages or rules.
NO_MESSAGES = {
    *("cli/completions.py", "cli/options_table.py", "cli/pages.py", "metrics.py"),
    *(
        "cli/schema_page.py",
        "config/template.py",
        "stager/breaker.py",
        "tiers/probe.py",
    ),
    *("stager/capacity.py", "stager/fetches.py", "stager/replicas.py"),
}
# Each has a shorter form that is understood at once.
AVOIDED = re.compile(
    r"\b(whoever|there (is|are|was|were) (no|a|an|room)|anew|looked at|asked for"
    r"|(has|have) (gone|come)|is told|are told|gives? back|is due|stands?)\b"
)


def _shown(value: ast.expr) -> str:
    """Return the name of what stands in a text, without how it is found."""
    if isinstance(value, ast.Name):
        return value.id
    if isinstance(value, ast.Attribute):
        return value.attr
    if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
        return str(value.slice.value)
    if isinstance(value, ast.Call) and value.args:
        return _shown(value.args[0])
    return "..."


def _text(node: ast.AST) -> str | None:
    """Return a text of the source, with names of what is put into it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            f"{{{_shown(part.value)}}}"
            if isinstance(part, ast.FormattedValue)
            else str(getattr(part, "value", ""))
            for part in node.values
        )
    return None


def _called(node: ast.AST) -> str:
    found = getattr(node, "func", None)
    return str(getattr(found, "attr", getattr(found, "id", "")))


def _docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _texts(node: ast.AST) -> Iterator[str]:
    """Yield the texts below a node, without those of docstrings and of other calls."""
    found = _text(node)
    if found is not None:
        yield found
        return
    if _docstring(node) or _called(node) in ELSEWHERE:
        return
    for child in ast.iter_child_nodes(node):
        yield from _texts(child)


def _is_message(text: str) -> bool:
    plain = re.sub(r"\{[^}]*\}", "X", text)
    return (
        len(plain.split()) >= WORDS_MIN
        and "\n" not in text.strip()
        and not re.search(r"\w=%|\(\?P|^\s*<|var\(--", plain)
        and re.search(r"[a-z]{3}", plain) is not None
    )


def _python_messages() -> dict[str, list[str]]:
    found = {}
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES).as_posix()
        if name not in NO_MESSAGES:
            texts = _texts(ast.parse(path.read_text()))
            found[name] = sorted({text.strip() for text in texts if _is_message(text)})
    return found


def _c_messages() -> dict[str, list[str]]:
    """Return the texts of the launcher; the Shim prints none."""
    literal = r'"(?:[^"\\]|\\.)*"'
    found = {}
    for path in sorted((SOURCES / "native/launcher").glob("*.c")):
        code = re.sub(r"/\*.*?\*/|^\s*#.*?$", "", path.read_text(), flags=re.S | re.M)
        joined = (
            "".join(part[1:-1] for part in re.findall(literal, run))
            for run in re.findall(rf"{literal}(?:\s*{literal})*", code)
        )
        texts = {text.replace("\\n", "").strip() for text in joined}
        name = path.relative_to(SOURCES).as_posix()
        found[name] = sorted(text for text in texts if _is_message(text))
    return found


def rendered() -> str:
    """Return the content of the snapshot."""
    return "\n".join(
        "\n".join([f"## {name}", *texts, ""])
        for name, texts in (_python_messages() | _c_messages()).items()
        if texts
    )


def test_messages_are_those_of_the_snapshot() -> None:
    assert rendered() == SNAPSHOT.read_text()


def test_messages_avoid_phrases_that_are_hard_to_read() -> None:
    assert [line for line in rendered().splitlines() if AVOIDED.search(line)] == []


if __name__ == "__main__":
    SNAPSHOT.write_text(rendered())
