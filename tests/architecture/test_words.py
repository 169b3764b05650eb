"""The project uses the field's words: no tracked text has a private one."""

from __future__ import annotations

from pathlib import Path

import pytest
from architecture.test_layout import ROOT, tracked
from architecture.words import CLASSES, Finding, classes_found, fragments_found, words_found

#: These say which words are not used.
_ABOUT_WORDS = {ROOT / "tests" / "architecture" / name for name in ("words.py", "test_words.py")}


def _texts(*patterns: str) -> list[Path]:
    paths = [path for pattern in patterns for path in tracked(pattern)]
    return [path for path in paths if path not in _ABOUT_WORDS]


def _shown(path: Path, found: list[Finding]) -> list[str]:
    return [f"{path.relative_to(ROOT)}:{each.line}: write {each.use} for {each.word!r}" for each in found]


def test_no_text_uses_a_private_word() -> None:
    """Prose, comments, messages and names of code, docs, pages and rule files have none of the words of `WORDS`."""
    found = [
        line
        for path in _texts("*.py", "*.md", "*.html", "*.yaml", "Makefile")
        for line in _shown(path, words_found(path.read_text()))
    ]

    assert not found, "\n".join(found)


def test_no_class_is_named_by_a_verb_or_an_adjective() -> None:
    """A class is named by what it holds."""
    found = [line for path in _texts("*.py") for line in _shown(path, classes_found(path.read_text()))]

    assert not found, "\n".join(found)


def test_no_function_of_the_package_is_named_by_a_fragment() -> None:
    """A function is named by a verb phrase, or by the noun that it returns."""
    sources = [path for path in _texts("*.py") if path.is_relative_to(ROOT / "include")]
    found = [line for path in sources for line in _shown(path, fragments_found(path.read_text()))]

    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "route it anew",
        "# a push heeds a pause",
        "def has_heir() -> bool:",
        "class HasHeir:",
        "invisible_time: 30s",
        "INVISIBLE_TIME",
        "whereWishesGo",
        "the files it left\n    # behind",
        "Mended, it goes",
        "rule_mistakes.py",
    ],
)
def test_a_private_word_is_found_wherever_it_stands(text: str) -> None:
    """In prose, comments, names of every style, at the beginning of a sentence, and over the end of a line."""
    assert [each.line for each in words_found(f"first line\n{text}\n")] == [2]


def test_a_finding_names_the_word_to_use() -> None:
    """The word as it stands, and the word to use, on each line that has one."""
    assert words_found("mend it\n\nand mended again") == [Finding(1, "mend", "fix"), Finding(3, "mended", "fixed")]


@pytest.mark.parametrize(
    "text",
    [
        "recommended",
        "their",
        "sorted, that is ordered by offset",
        "CHANGE_INVISIBLE_TIME",
        "invisibleTime",
        "a new file",
        "amend it",
    ],
)
def test_a_word_that_holds_a_private_one_is_none(text: str) -> None:
    """A part of a longer word, plain English that is only a name's words, and names of other projects are fine."""
    assert words_found(text) == []


def test_a_class_is_found_by_its_name_alone() -> None:
    """Also one that is private or inside another; other names that contain such a word are none."""
    source = (
        "class A:\n    class _Said:\n        pass\n\n\nclass Kept(A):\n    pass\n\n\nclass KeptResponse:\n    pass\n"
    )

    assert [(each.line, each.word) for each in classes_found(source)] == [(2, "_Said"), (6, "Kept")]
    assert all(classes_found(f"class {name}: ...") for name in CLASSES)


def test_a_fragment_is_found_among_functions_with_whole_names() -> None:
    """A preposition phrase or a participle alone; a verb phrase and a noun are whole names."""
    source = "def _of_batch(): ...\ndef shown(self): ...\ndef find_shown(): ...\ndef offsets(): ...\n"

    assert [(each.line, each.word) for each in fragments_found(source)] == [(1, "_of_batch"), (2, "shown")]
