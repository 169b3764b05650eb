"""Tables: whole in a pipe, fitting in a terminal, harmless whatever their cells hold."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbridge.cli import output
from eventbridge.cli.output import show_table, visible

IDS = [str(uuid.UUID(int=number)) for number in range(2)]
COLUMNS = ["name", "rule", "count", "detail"]
ROWS = [
    [IDS[0], "big-orders-of-the-day", 12_345, "the response was no: 400 Bad Request"],
    ["orders/placed/0/17", "all", 1, None],
]

Shown = Callable[..., list[str]]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shown:
    """Print a table on a terminal of so many columns (None: into a pipe) and return its lines."""

    def show(width: int | None, columns: list[str], rows: list[list[Any]], **options: Any) -> list[str]:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: width is not None, raising=False)
        monkeypatch.setenv("COLUMNS", str(width))
        show_table("Things", columns, rows, **options)
        return capsys.readouterr().out.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()

    return show


def test_a_pipe_gets_everything_on_one_line_a_row(shown: Shown) -> None:
    """Not a terminal: nothing is wrapped, shortened or padded at the end; numbers are aligned to the right."""
    assert shown(None, COLUMNS, ROWS, ids={"name"}) == [
        "Things",
        "  name                                  rule                    count  detail",
        "  00000000-0000-0000-0000-000000000000  big-orders-of-the-day  12,345  the response was no: 400 Bad Request",
        "  orders/placed/0/17                    all                         1",
    ]


def test_a_wide_terminal_gets_the_same(shown: Shown) -> None:
    """200 columns are enough for everything."""
    assert shown(200, COLUMNS, ROWS, ids={"name"}) == shown(None, COLUMNS, ROWS, ids={"name"})


@pytest.mark.parametrize(
    ("terminal", "no_color", "term", "styled"),
    [(True, "", "xterm", True), (True, "1", "xterm", False), (True, "", "dumb", False), (False, "", "xterm", False)],
)
def test_only_a_terminal_gets_style_and_no_color_removes_it(
    terminal: bool,
    no_color: str,
    term: str,
    styled: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A pipe gets plain text; so does a terminal with NO_COLOR (https://no-color.org) or TERM=dumb."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", term)

    output.show_table("Rows", ["a", "state"], [["b", "failed"]])

    assert ("\x1b[" in capsys.readouterr().out) == styled


def test_a_narrow_terminal_shortens_ids_then_wraps_text(shown: Shown) -> None:
    """80 columns: UUIDs keep what a prefix look-up needs, words go to the next line, no line is longer."""
    assert shown(80, COLUMNS, ROWS, ids={"name"}) == [
        "Things",
        "  name                rule                    count  detail",
        "  00000000-0000…      big-orders-of-the-day  12,345  the response was no: 400",
        "                                                     Bad Request",
        "  orders/placed/0/17  all                         1",
    ]


def test_a_shortened_name_stays_unique(shown: Shown) -> None:
    """The name of a dead letter is an id, `@` and eight digits: shortened, it is still one that `show` takes."""
    row = [f"{IDS[0]}@0e26fcb8", *ROWS[0][1:]]

    assert shown(80, COLUMNS, [row], ids={"name"})[2].split()[0] == "00000000-0000@0e26fcb8"


def test_a_very_narrow_terminal_gets_a_block_a_row(shown: Shown) -> None:
    """Where not even the words fit side by side: `column value`, nothing shortened."""
    assert shown(30, COLUMNS, ROWS[:1], ids={"name"}) == [
        "Things",
        "  name    00000000-0000-0000-0000-000000000000",
        "  rule    big-orders-of-the-day",
        "  count   12,345",
        "  detail  the response was no: 400 Bad Request",
    ]


def test_no_rows_are_one_line(shown: Shown) -> None:
    """An empty table says so."""
    assert shown(80, COLUMNS, []) == ["Things: none"]


def test_cells_of_every_kind(shown: Shown) -> None:
    """Times are UTC to the second, truth is yes or no, fractions have one digit, nothing is nothing."""
    row = [datetime(2026, 3, 1, 12, 0, 0, 999, UTC), True, 1234.56, None]

    assert shown(None, COLUMNS, [row])[2].split() == ["2026-03-01", "12:00:00", "yes", "1,234.6"]


def test_a_cell_cannot_command_the_terminal(shown: Shown) -> None:
    """An escape sequence in a cell is shown, and a line end in it begins no new row."""
    assert shown(None, ["a"], [["\x1b[2Jx\ny"]])[2:] == ["  \\x1b[2Jx\\ny"]


@pytest.mark.parametrize("width", [None, 200, 30])
def test_one_cell_without_measure_does_not_fill_the_table(shown: Shown, width: int | None) -> None:
    """An id of 100 KB is cut after 300 characters, so that the other rows are not padded to it."""
    lines = shown(width, ["event", "detail"], [["x" * 100_000, "a"], ["y" * 300, "b"]])

    text = "".join("".join(lines).split())
    assert (text.count("x"), text.count("…"), text.count("y")) == (299, 1, 300)
    assert max(map(len, lines)) <= 320


def test_wide_characters_take_two_columns(shown: Shown) -> None:
    """A column is as wide as a terminal shows it."""
    _, _, first, second = shown(None, ["a", "b"], [["東京", "x"], ["abcd", "y"]])

    assert first == "  東京  x"
    assert second == "  abcd  y"


def test_control_sequences_of_a_terminal_are_escaped() -> None:
    """Escape sequences, line ends, marks that turn the direction of text: all escaped."""
    assert visible("a\x1b[2J\r\nb\u202ec\ud800") == "a\\x1b[2J\\r\\nb\\u202ec\\ud800"
    assert visible("naïve 東京 [bold]") == "naïve 東京 [bold]"


@given(
    rows=st.lists(st.tuples(st.text(max_size=40), st.text(max_size=60), st.integers()), min_size=1, max_size=5),
    room=st.one_of(st.none(), st.integers(10, 200)),
)
def test_a_table_keeps_within_its_room_and_loses_nothing(rows: list[tuple[str, str, int]], room: int | None) -> None:
    """Every table fits as lines, or else as blocks; every character that is not white space is shown."""
    cells = [[output.cell_text(value) for value in row] for row in rows]

    lines = list(output._layout(["one", "two", "three"], cells, [False, False, True], (), room))

    as_blocks = room is not None and lines[0].startswith("  one") and lines[1].startswith("  two")
    wrapped_words = any(len(word) > output._LONGEST_WORD for row in cells for cell in row for word in cell.split())
    if room is not None and not as_blocks and not wrapped_words:
        assert max(output._width(line.replace("\x1b[1m", "").replace("\x1b[0m", "")) for line in lines) <= room
    text = sorted("".join("".join(lines).split()))
    assert all(text.count(letter) >= count for letter, count in _letters(cells).items())


def _letters(cells: list[list[str]]) -> dict[str, int]:
    joined = "".join("".join("".join(row) for row in cells).split())
    return {letter: joined.count(letter) for letter in set(joined)}
