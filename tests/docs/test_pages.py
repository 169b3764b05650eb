"""README.md and docs/: every command on a page does what the page says, every link leads somewhere, every promise
names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from docs.command_help import ORDER
from docs.session import FENCE, run_page, steps_of

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
#: Pages that are read one after the other, in one shell: those of the command line continue the page of the first rule.
TOURS = [("docs/tutorials/first-rule.md", *(f"docs/reference/cli/{name}.md" for name in ORDER))]
_KILLED = """
```sh
mkdir rules
echo 'buses: {orders: {source: {type: embedded}}}' > rules/orders.yaml
EVENTBRIDGE_RULES_FOLDER=rules eventbridge serve --port 0 > served &
until grep -q listening served; do sleep 0.1; done
URL=$(sed 's/listening on //' served)
curl -s $URL > /dev/null
kill -9 $!
for _ in $(seq 100); do curl -s $URL > /dev/null || break; sleep 0.1; done
! curl -s $URL > /dev/null
```
"""
_RECORD = re.compile(
    r"# (\d+)\. (.+)\n\nDate: (\d{4}-\d\d-\d\d) · Status: ((?:Accepted|Superseded by|Superseded in part by).*)\n"
)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def sessions() -> list[tuple[str, ...]]:
    """Return the pages that have commands, those of a tour together."""
    toured = {name for tour in TOURS for name in tour}
    names = [str(page.relative_to(ROOT)) for page in PAGES if steps_of(page.read_text())]
    return [*TOURS, *((name,) for name in names if name not in toured)]


@pytest.mark.parametrize("names", sessions(), ids=" + ".join)
def test_the_commands_of_a_page_do_what_it_says(
    names: tuple[str, ...], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Each command is run as a reader would, and prints what the page shows below it.

    Commands of the tour start a Spark Connect server each; the other pages are read where one runs.
    """
    texts = [(ROOT / name).read_text() for name in names]
    settings = {}
    if names not in TOURS and any("eventbridge deliver" in step.command for text in texts for step in steps_of(text)):
        settings["EVENTBRIDGE_SPARK_REMOTE"] = request.getfixturevalue("spark_server").url

    wrong = run_page("\n".join(texts), tmp_path, **settings)

    assert wrong == [], "\n\n".join(wrong)


def test_a_command_that_is_killed_has_ended(tmp_path: Path) -> None:
    """What stands for `eventbridge` on a page takes the process of its command along, also by kill -9."""
    assert run_page(_KILLED, tmp_path) == []


def test_the_tour_leaves_a_checkout_clean() -> None:
    """A reader takes it in the checkout that `make setup` was run in; git passes over the folders that it makes."""
    made = re.findall(r"^mkdir -p (\w+)", (ROOT / "docs" / "tutorials" / "first-rule.md").read_text(), re.MULTILINE)
    ignored = (ROOT / ".gitignore").read_text().splitlines()

    assert made
    assert [each for each in made if f"/{each}/" not in ignored] == []


def test_no_command_hides_in_another_kind_of_block() -> None:
    """What looks like a session is run, or says that it is run elsewhere."""
    hidden = [
        f"{page.relative_to(ROOT)}: {fence[1] or 'no language'}: {line}"
        for page in PAGES
        for fence in FENCE.finditer(page.read_text())
        for line in fence[2].splitlines()
        if line.startswith("$ ") and fence[1] not in ("console", "console elsewhere")
    ]

    assert hidden == []


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    """A page that mkdocs.yml does not name cannot be found; decision records are found by their index."""
    named = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text()))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}

    assert sorted(page for page in pages - named if not page.startswith("contributing/decisions/")) == []


def test_a_guide_is_short() -> None:
    """A how-to guide has at most 220 lines; what is longer is two guides, or belongs to the reference."""
    guides = (ROOT / "docs" / "howto").rglob("*.md")

    assert [page.name for page in guides if page.read_text().count("\n") > 220] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """A link to a file of the repository, and to a heading in it, is right."""
    broken = []
    for link in _LINK.findall(FENCE.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" not in link and not (target.exists() and (not anchor or anchor in _anchors(target))):
            broken.append(link)

    assert broken == []


def _anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_promise_names_tests_that_exist() -> None:
    """docs/contributing/promises.md proves each promise by tests, `file::test`, and all of them exist."""
    promises = re.split(r"^### ", (ROOT / "docs" / "contributing" / "promises.md").read_text(), flags=re.MULTILINE)[1:]
    named = {promise.split("\n")[0]: re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", promise) for promise in promises}

    assert len(promises) >= 10
    assert [title for title, tests in named.items() if not tests] == []
    assert [test for tests in named.values() for test in tests if test[1] not in _tests_of(ROOT / test[0])] == []


def _tests_of(file: Path) -> set[str]:
    if not file.is_file():
        return set()
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}


def test_the_index_lists_every_decision_record() -> None:
    """Each record has a number in date order, a date and a status, and its row in the index says the same."""
    folder = ROOT / "docs" / "contributing" / "decisions"
    records = [_RECORD.match(page.read_text()) for page in sorted(folder.glob("0*.md"))]
    assert all(records)
    pages = [page.name for page in sorted(folder.glob("0*.md"))]
    rows = [
        f"| [{record[1]}]({page}) | {record[3]} | {record[2]} | {record[4]} |"
        for page, record in zip(pages, records, strict=True)
        if record
    ]

    assert [int(record[1]) for record in records if record] == list(range(1, len(pages) + 1))
    assert [record[3] for record in records if record] == sorted(record[3] for record in records if record)
    assert rows == [line for line in (folder / "index.md").read_text().splitlines() if line.startswith("| [")][::-1]


def test_the_demos_output_has_its_place() -> None:
    """The page of the demo holds its output between two marks, so that it can be replaced as a whole."""
    text = (ROOT / "docs" / "tutorials" / "demo.md").read_text()

    assert re.search(r"<!-- demo output: begin.* -->\n(.*\n)*<!-- demo output: end -->", text)
