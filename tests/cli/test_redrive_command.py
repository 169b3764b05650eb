"""`dead-letters redrive`, `redrives`, `cancel`: dead letters are delivered again from the command line."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def healed(delivered: Any) -> Any:
    """The shop after the target `bad` was replaced by a file, so that what it refused can be delivered."""
    path = delivered.rules / "orders.yaml"
    lines = path.read_text().splitlines()
    kept = [
        f"      bad: {{type: file, path: {delivered.folder}/bad.jsonl}}" if line.strip().startswith("bad:") else line
        for line in lines
    ]
    path.write_text("\n".join(kept) + "\n")
    return delivered


def test_a_dry_run_says_what_would_be_taken_and_what_not(healed: Any, eventbridge: Callable[..., Any]) -> None:
    """By target, with the reason; and nothing happens."""
    found = eventbridge("dead-letters", "redrive", "--all", "--dry-run", "--json").json
    shown = eventbridge("dead-letters", "redrive", "--all", "--dry-run").out

    assert found["taken"] == [{"of": "all-orders/bad", "count": 4}]
    assert {(each["of"], each["why"]) for each in found["left"]} == {
        ("all-orders/gone", "target disabled"),
        ("big-orders/note", "there is no request to send again; --retransform makes one"),
        ("orders", "the event never became a delivery"),
    }
    assert "all-orders/bad" in shown
    assert eventbridge("dead-letters", "redrives").out == "Redrives, times in UTC: none\n"
    assert not (healed.folder / "bad.jsonl").exists()


def test_dead_letters_are_redriven_and_marked(healed: Any, eventbridge: Callable[..., Any]) -> None:
    """Delivered, said, marked in list and show; a second time there is nothing to take."""
    done = eventbridge("dead-letters", "redrive", "--target", "bad", "--reason", "NonRetryable")
    again = eventbridge("dead-letters", "redrive", "--target", "bad", "--json")
    listed = eventbridge("dead-letters", "list", "--target", "bad", "--json").json
    redrives = eventbridge("dead-letters", "redrives", "--json").json

    assert done.out == "done: 1 batch, 4 dead letters taken: 4 Delivered\n"
    assert (again.json["state"], again.json["taken"], again.json["outcomes"]) == ("done", 0, {})
    assert len((healed.folder / "bad.jsonl").read_text().splitlines()) == 4
    assert {each["redriven"]["outcome"] for each in listed} == {"Delivered"}
    assert [each["taken"] for each in redrives] == [0, 4]
    assert redrives[1]["selection"] == {"target": "bad", "reason": "NonRetryable"}
    assert " Delivered" in eventbridge("dead-letters", "list", "--target", "bad").out
    assert "redriven " in eventbridge("dead-letters", "show", listed[0]["name"]).out
    assert "target bad; reason NonRetryable" in eventbridge("dead-letters", "redrives").out
    assert eventbridge("audit").code == 0


def test_what_fails_again_is_a_new_dead_letter_or_parked(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """A target that still refuses gives new letters; the old ones say so."""
    done = eventbridge("dead-letters", "redrive", "--target", "bad", "--rate", "1000")

    assert "4 DeadLettered" in done.out
    assert len(eventbridge("dead-letters", "list", "--target", "bad", "--json").json) == 8
    assert eventbridge("audit").code == 0


def test_a_redrive_is_cancelled_by_the_beginning_of_its_id(healed: Any, eventbridge: Callable[..., Any]) -> None:
    """One that has ended stays as it is; one that is none is the user's mistake."""
    redrive_id = eventbridge("dead-letters", "redrive", "--target", "bad", "--json").json["redrive_id"]

    ended = eventbridge("dead-letters", "cancel", redrive_id[:8])
    unknown = eventbridge("dead-letters", "cancel", "zzz")
    resumed = eventbridge("dead-letters", "redrive", "--resume", redrive_id[:8])

    assert ended.out == f"{redrive_id} has ended already: done\n"
    assert (unknown.code, resumed.out) == (2, "done: 0 batches, 4 dead letters taken: 4 Delivered\n")
    assert "there is no redrive 'zzz'" in unknown.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--all"),
        (("--all", "--rule", "x"), "choose by themselves"),
        (("--resume", "a", "--rule", "x"), "choose by themselves"),
        (("--all", "--rate", "0.01"), "too low"),
        (("--sql", "nonsense here"), "no condition"),
    ],
)
def test_mistakes_begin_nothing(
    options: tuple[str, ...], said: str, delivered: Any, eventbridge: Callable[..., Any]
) -> None:
    """What is written wrong is told, and no redrive is recorded."""
    result = eventbridge("dead-letters", "redrive", *options)

    assert result.code == 2
    assert said in result.err
    assert eventbridge("dead-letters", "redrives", "--json").json == []


def test_a_second_command_for_one_redrive_is_refused(healed: Any, eventbridge: Callable[..., Any]) -> None:
    """Each would take over the other's pushes."""
    redrive_id = eventbridge("dead-letters", "redrive", "--target", "bad", "--json").json["redrive_id"]
    with (healed.folder / "home" / f"redrive.{redrive_id}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        result = eventbridge("dead-letters", "redrive", "--resume", redrive_id)

    assert result.code == 4
    assert "is at work" in result.err
