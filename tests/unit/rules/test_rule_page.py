"""docs/reference/rule-file/: every field, every word that is refused, and examples that are what they say."""

from __future__ import annotations

import re
import shutil
import textwrap
from pathlib import Path

import pytest

from eventbridge.errors import RuleFileError
from eventbridge.rules.load import load_rules
from eventbridge.rules.tests import failures
from eventbridge.rules.types import fields_of
from eventbridge.rules.vocabulary import (
    CONTENT_MODES,
    FIELDS,
    POLICIES,
    POLICY_ALIASES,
    PRIORITIES,
    SIGNATURES,
    SOURCE_TYPES_LATER,
    TARGET_TYPES_LATER,
)

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "reference" / "rule-file"
PAGE = "\n".join(["", *(page.read_text() for page in sorted(FOLDER.glob("*.md")))])

HEADINGS = {
    "a rule file": "## Files",
    "an owner": "## Owner",
    "a bus": "# Bus",
    "a runner": "## Runner",
    "streaming mode": "### Streaming",
    "a source": "## Source",
    "a mapping": "## Mapping",
    "a webhook": "## Webhook",
    "a rule": "# Rule",
    "an expectation": "## Expectations",
    "a test": "## Tests",
    "a target": "# Target",
    "a dead letter queue": "## Dead letter queue",
    "a timeout": "## Timeout",
    "a delivery window": "## Waiting",
    "a batch": "## Batch",
    "a signature": "## Signature",
    "a handshake": "## Handshake",
    "a retry policy": "# Retry policy",
}


def section(heading: str) -> str:
    """Return what stands below a heading, up to the next one."""
    return PAGE.split(f"\n{heading}\n")[1].split("\n#")[0]


def blocks(kind: str, page: str = PAGE) -> list[str]:
    """Return the code blocks of one kind."""
    return re.findall(rf"^ *```{kind}\n(.*?)^ *```$", page, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("what", HEADINGS)
def test_page_has_every_field(what: str) -> None:
    """The table of each thing has its fields and no others."""
    fields = re.findall(r"^\| `(\w+)` \|", section(HEADINGS[what]), re.MULTILINE)

    assert sorted(fields_of(what)) == sorted(fields)


def test_page_has_every_field_of_a_transform() -> None:
    """Transforms have a page of their own; their fields are named here."""
    assert list(FIELDS["a transform"]) == re.findall(r"`(\w+)`", section("## Transform").split(":")[0])


def test_page_has_everything_that_is_not_in_this_version() -> None:
    """Every type that is refused for now is listed."""
    listed = re.findall(r"`([\w: ]+)`", section("## Not in this version"))

    assert {*SOURCE_TYPES_LATER, *TARGET_TYPES_LATER} == set(listed)


@pytest.mark.parametrize("word", [*PRIORITIES, *POLICIES, *POLICY_ALIASES, *CONTENT_MODES, *SIGNATURES])
def test_page_has_every_word(word: str) -> None:
    """Every value that a field may have by name is on the page."""
    assert f"`{word}`" in PAGE


def examples() -> list[tuple[str, str]]:
    """Return every example of rules on any page: the page, and the text."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    return [(page.stem, textwrap.dedent(text)) for page in pages for text in blocks("yaml rules", page.read_text())]


@pytest.mark.parametrize(("page", "example"), examples())
def test_example_is_right(tmp_path: Path, page: str, example: str) -> None:
    """The examples of all pages can be used as they stand."""
    (tmp_path / "example.yaml").write_text(example)

    assert load_rules(tmp_path).rules


def test_the_shipped_example_of_rules_on_airflow_passes_its_tests(tmp_path: Path) -> None:
    """A reader copies it; its name keeps it out of the demo's rules."""
    shutil.copy(ROOT / "include" / "rules" / "airflow.yaml.example", tmp_path / "airflow.yaml")

    assert set(load_rules(tmp_path, checked=True, tried_by=failures).rules) == {"failing-again", "many-rows"}


def test_example_of_errors_shows_what_is_really_said(tmp_path: Path) -> None:
    """The page's output is that of the page's file."""
    file = tmp_path / "orders.yaml"
    file.write_text(blocks("yaml errors")[0])

    with pytest.raises(RuleFileError) as caught:
        load_rules(tmp_path)
    output = re.findall(
        r"^```console elsewhere\n(\$ eventbridge rules check\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
    )
    shown = output[0].replace("include/rules/orders.yaml", str(file))
    assert shown == f"$ eventbridge rules check\nError: {caught.value}\n"


def test_glossary_defines_each_word_once() -> None:
    """A word has one definition; the words of the model's classes have one."""
    text = (ROOT / "GLOSSARY.md").read_text()
    words = re.findall(r"(?:^- |\. |; )\*\*([\w -]+)\*\*", text, re.MULTILINE)
    entries = [line for line in text.splitlines() if line.startswith("- ")]

    lowered = [word.lower() for word in words]
    needed = {"rule", "rule set", "target", "transform", "retry policy", "event bus", "source", "batch", "delivery"}
    assert sorted(set(lowered)) == sorted(lowered)
    assert needed <= set(lowered)
    assert len(entries) <= 60
    assert [entry for entry in entries if not re.fullmatch(r"- \*\*[^*]+\*\*(?: \(\w+\))?: [^*]+[.\]]\.?", entry)] == []
