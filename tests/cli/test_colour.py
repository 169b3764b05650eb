"""Colour on a terminal only: the kind of a message, and the states of a table."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from cli.terminals import on_terminal

from eventbridge.cli.colour import state_styled

RED, GREEN, BOLD, END = "\x1b[31m", "\x1b[32m", "\x1b[1m", "\x1b[0m"


def shown(shop: Any, *arguments: str, **environ: str) -> str:
    """Return what a command shows on a terminal that is both its outputs."""
    with on_terminal(shop, *arguments, whole=True, **environ) as command:
        command.end()
    return command.seen


def test_a_terminal_shows_the_kind_of_a_message_in_colour(shop: Any) -> None:
    """`Error:` is red, its text is not."""
    assert shown(shop, "rules", "show", "big-order").startswith(f"{RED}{BOLD}Error:{END} no rule")


def test_a_terminal_shows_states_in_colour(shop: Any) -> None:
    """A target that is ok is green; names, however they are called, have no colour."""
    lines = shown(shop, "targets", "list").splitlines()

    states = [line for line in lines if f"{GREEN}ok{END}" in line]
    assert len(states) == 3
    assert all(line.count("\x1b[") == 2 for line in states)


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "TERM=dumb"])
def test_the_user_can_switch_colour_off(environ: dict[str, str], shop: Any) -> None:
    """Then the terminal shows what a pipe gets: no escape sequence at all."""
    for arguments in (("rules", "show", "big-order"), ("targets", "list")):
        assert "\x1b" not in shown(shop, *arguments, **environ)


def test_a_pipe_gets_no_colour(shop: Any) -> None:
    """Neither of the two streams."""
    result = shop.run_process("targets", "list", env={"TERM": "xterm"})
    failed = shop.run_process("rules", "show", "big-order", env={"TERM": "xterm"})

    assert "\x1b" not in result.out + result.err + failed.out + failed.err


@pytest.mark.parametrize(
    ("cell", "coloured"),
    [
        ("failed", f"{RED}failed{END}"),
        ("disabled by an operator", f"{RED}disabled{END} by an operator"),
        ("on hold: the rule is paused", "\x1b[33mon hold\x1b[0m: the rule is paused"),
        ("half-open", "\x1b[33mhalf-open\x1b[0m"),
        ("opened", "opened"),
        ("ok-ish", "ok-ish"),
        ("running", "running"),
        ("", ""),
    ],
)
def test_a_cell_is_coloured_up_to_the_end_of_its_state(
    cell: str, coloured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word that only begins like a state has no colour."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    assert state_styled(cell, sys.stdout) == coloured
