"""Progress on the terminal: after two seconds, on standard error, erased at the end; elsewhere nothing."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cli.terminals import on_terminal

from eventbridge.cli import progress
from eventbridge.cli.output import warn
from eventbridge.cli.progress import progress_text, shown_progress

ERASE = "\r\x1b[K"
PUBLISH = ("events", "publish", "orders", "-")


def thousand_orders(shop: Any) -> bytes:
    """Return as many events as one transaction of a bus takes, so that its progress is reported."""
    return Path(shop.orders(*range(1_000))).read_bytes()


def test_a_long_command_shows_its_progress_and_erases_it(shop: Any) -> None:
    """A publish whose input comes slowly shows how many events are durable; the pipe of its output has none of it."""
    with on_terminal(shop, *PUBLISH) as command:
        assert command.process.stdin is not None
        command.process.stdin.write(thousand_orders(shop))
        command.process.stdin.flush()
        command.read_until("publishing  1,000 events  0:0")
        code, out = command.end()

    assert code == 0
    assert out == "1,000 events published to orders/placed. The next batch of each runner takes them.\n"
    assert command.seen.startswith(f"{ERASE}publishing  ")
    assert command.seen.endswith(ERASE)


class Screen(io.StringIO):
    """A terminal that keeps what is written on it."""

    def isatty(self) -> bool:
        """Return that it is a terminal."""
        return True

    def fileno(self) -> int:
        """Raise the error of a stream without a file."""
        raise OSError("it has no file")


def test_a_warning_takes_the_place_of_the_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else a command writes on the terminal begins at the margin of an empty line."""
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(sys, "argv", ["eventbridge", "audit"])
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(progress, "AFTER_SECONDS", 0.0)

    with shown_progress("auditing", "batches"):
        while "auditing" not in screen.getvalue():
            time.sleep(0.01)
        before = screen.getvalue()
        warn("a disk is nearly full")

    assert before == f"{ERASE}auditing  0:00"
    assert screen.getvalue().startswith(f"{before}{ERASE}Warning: a disk is nearly full\n")
    assert sys.stderr is screen


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_erases_the_progress_and_the_command_says_what_it_did(
    number: signal.Signals, code: int, shop: Any
) -> None:
    """Of an interrupted publish, the durable events are counted; nothing is undone."""
    with on_terminal(shop, *PUBLISH) as command:
        assert command.process.stdin is not None
        command.process.stdin.write(thousand_orders(shop))
        command.process.stdin.flush()
        command.read_until("publishing  1,000 events  0:0")
        command.process.send_signal(number)
        assert command.process.wait(60) == code
        command.read()

    assert command.seen.endswith(f"{ERASE}Note: interrupted: at least the first 1,000 events were published\n")


def test_a_command_of_less_than_two_seconds_shows_no_progress(shop: Any) -> None:
    """A publish of one event writes nothing on the terminal."""
    with on_terminal(shop, "events", "publish", "orders", shop.orders(1)) as command:
        code, _ = command.end()

    assert (code, command.seen) == (0, "")


def test_only_a_terminal_shows_progress_and_only_beside_text(shop: Any) -> None:
    """Nothing in a pipe or a log, nothing beside a document, whose error is JSON, nothing if no line can be erased."""
    with ExitStack() as stack:
        pipe = stack.enter_context(shop.process(*PUBLISH, stdin=subprocess.PIPE, env={"TERM": "xterm"}))
        others = [
            stack.enter_context(on_terminal(shop, *PUBLISH, *arguments, TERM=term))
            for arguments, term in ((("-o", "json"), "xterm"), (("--json",), "xterm"), ((), "dumb"))
        ]
        with pytest.raises(subprocess.TimeoutExpired):
            pipe.wait(4.0)
        out, err = pipe.communicate("", timeout=60)
        ended = [each.end() for each in others]

    assert (out, err) == ("0 events published to orders/placed. The next batch of each runner takes them.\n", "")
    assert [code for code, _ in ended] == [0, 0, 0]
    assert [each.seen for each in others] == ["", "", ""]


@pytest.mark.parametrize(
    ("at", "seconds", "text"),
    [
        (None, 2, "auditing  0:02"),
        ((1_500, None), 75, "auditing  1,500 batches  1:15"),
        ((0, 4), 3, "auditing  [------------------------] 0%  0 of 4 batches  0:03"),
        ((1, 4), 30, "auditing  [######------------------] 25%  1 of 4 batches  0:30, 1:30 left"),
        ((4, 4), 3_725, "auditing  [########################] 100%  4 of 4 batches  1:02:05"),
        ((5, 4), 60, "auditing  [########################] 100%  5 of 4 batches  1:00"),
    ],
)
def test_the_line_has_share_count_and_time(at: tuple[int, int | None] | None, seconds: float, text: str) -> None:
    """Without a known total it has the count; the time that is left follows from the time so far."""
    assert progress_text(("auditing", "batches"), at, seconds) == text


def test_a_narrow_terminal_cuts_the_line(shop: Any) -> None:
    """A line that wrapped could not be erased."""
    with on_terminal(shop, *PUBLISH, columns=12) as command:
        command.read_until("publishing ")
        command.end()

    drawn = command.seen.split(ERASE)
    assert drawn
    assert max(map(len, drawn)) < 12


def test_a_file_is_counted_before_it_is_published(shop: Any, tmp_path: Path) -> None:
    """A regular file has a known number of events, blank lines left out; a pipe and a missing file have none."""
    from eventbridge.cli.lines import count_lines

    file = tmp_path / "events.jsonl"
    file.write_text(f"{json.dumps({})}\n\n{json.dumps({})}")

    assert count_lines(str(file)) == 2
    assert count_lines("-") is None
    assert count_lines(str(tmp_path / "missing")) is None
    assert count_lines(str(tmp_path)) is None
