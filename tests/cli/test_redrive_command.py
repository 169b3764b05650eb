"""`redrives start`, `redrives`, `cancel`: dead letters are delivered again from the command line."""

from __future__ import annotations

import fcntl
import json
import time
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
    found = eventbridge("redrives", "start", "--all", "--dry-run", "--json").json
    shown = eventbridge("redrives", "start", "--all", "--dry-run").out

    assert found["taken"] == [{"of": "all-orders/bad", "count": 4}]
    assert {(each["of"], each["why"]) for each in found["left"]} == {
        ("all-orders/gone", "target disabled"),
        ("big-orders/note", "there is no request to send again; --retransform makes one"),
        ("orders", "the event never became a delivery"),
    }
    assert "all-orders/bad" in shown
    assert eventbridge("redrives", "list").out == "Redrives, times in UTC: none\n"
    assert not (healed.folder / "bad.jsonl").exists()


def test_dead_letters_are_redriven_and_marked(healed: Any, eventbridge: Callable[..., Any]) -> None:
    """Delivered, said, marked in list and show; a second time there is nothing to take."""
    done = eventbridge("redrives", "start", "--target", "bad", "--reason", "non_retryable")
    again = eventbridge("redrives", "start", "--target", "bad", "--json")
    listed = eventbridge("dead-letters", "list", "--target", "bad", "--json").json
    redrives = eventbridge("redrives", "list", "--json").json

    assert done.out.endswith(" done: 4 dead letters taken, 4 delivered. Nothing of it is left to do.\n")
    assert (again.json["state"], again.json["taken"], again.json["outcomes"]) == ("done", 0, {})
    assert len((healed.folder / "bad.jsonl").read_text().splitlines()) == 4
    assert {each["redriven"]["outcome"] for each in listed} == {"delivered"}
    assert [each["taken"] for each in redrives] == [0, 4]
    assert redrives[1]["selection"] == {"target": "bad", "reason": "non_retryable"}
    assert " delivered" in eventbridge("dead-letters", "list", "--target", "bad").out
    assert "redriven " in eventbridge("dead-letters", "show", listed[0]["name"]).out
    assert "target bad; reason non_retryable" in eventbridge("redrives", "list").out
    assert eventbridge("audit").code == 0


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (("--error", "http 400"), 4),
        (("--error", "NO SUCH TEXT"), 0),
        (("--from", "1h"), 4),
        (("--to", "1h"), 0),
        (("--from", "2020-01-01T00:00:00+02:00", "--to", "2020-01-02"), 0),
        (("--sql", "(event->>'$.data.amount')::INT > 1000"), 2),
        (("--sql", "attempts[1].code = 400", "--from", "1d", "--rule", "all-orders"), 4),
    ],
)
def test_dead_letters_to_redrive_are_selected(
    options: tuple[str, ...], count: int, healed: Any, eventbridge: Callable[..., Any]
) -> None:
    """By error text, time and SQL, as `list` does; a dry run says as many, and exactly those are delivered."""
    chosen = eventbridge("dead-letters", "list", "--target", "bad", *options, "--json").json
    planned = eventbridge("redrives", "start", *options, "--dry-run", "--json").json["taken"]

    done = eventbridge("redrives", "start", *options, "--json").json

    file = healed.folder / "bad.jsonl"
    sent = {json.loads(line)["id"] for line in file.read_text().splitlines()} if file.exists() else set()
    assert len(chosen) == sum(each["count"] for each in planned) == done["taken"] == count
    assert sent == {each["event_id"] for each in chosen}
    assert len(sent) == count


def test_dead_letters_to_redrive_are_selected_by_name(healed: Any, eventbridge: Callable[..., Any]) -> None:
    """A delivery id, or its beginning; several may be named."""
    one, other, *_ = (each["name"] for each in eventbridge("dead-letters", "list", "--target", "bad", "--json").json)

    done = eventbridge("redrives", "start", "--name", one, "--name", other[:13], "--json").json

    listed = eventbridge("dead-letters", "list", "--target", "bad", "--json").json
    marked = [each["name"] for each in listed if each["redriven"]]
    assert done["outcomes"] == {"delivered": 2}
    assert set(marked) == {one, other}


def test_a_running_redrive_is_cancelled(healed: Any, eventbridge: Callable[..., Any]) -> None:
    """Its command ends after the one in progress; what is not taken stays a dead letter, and can be redriven."""
    with healed.process("redrives", "start", "--target", "bad", "--rate", "0.1") as running:
        redrive_id = _until(lambda: _delivered_one(eventbridge), "one dead letter of four is delivered")
        cancelled = eventbridge("redrives", "cancel", redrive_id[:8])
        out, err = running.communicate(timeout=60)

    assert cancelled.out == f"Redrive {redrive_id} cancelled. The dead letters that it did not take stay as they are.\n"
    assert running.returncode == 0, err
    assert out == (
        f"Redrive {redrive_id} cancelled: 1 dead letter taken, 1 delivered. What it did not take stays as it is.\n"
    )
    assert len((healed.folder / "bad.jsonl").read_text().splitlines()) == 1
    assert eventbridge("redrives", "start", "--target", "bad", "--json").json["taken"] == 3
    assert eventbridge("audit").code == 0


def _delivered_one(eventbridge: Callable[..., Any]) -> str:
    """Return the id of a running redrive that has delivered a dead letter, "" if there is none."""
    for each in eventbridge("redrives", "list", "--json").json:
        if each["state"] == "running" and each["outcomes"] == {"delivered": 1}:
            return str(each["redrive_id"])
    return ""


def _until(look: Callable[[], str], what: str, seconds: float = 120.0) -> str:
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"still not: {what}"
        time.sleep(0.1)
    return found


def test_a_redrive_that_fails_is_a_new_dead_letter_or_pending(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """A target that still refuses gives new dead letters; the old ones say so."""
    done = eventbridge("redrives", "start", "--target", "bad", "--rate", "1000")

    assert "4 dead_lettered" in done.out
    assert len(eventbridge("dead-letters", "list", "--target", "bad", "--json").json) == 8
    assert eventbridge("audit").code == 0


def test_a_redrive_is_cancelled_by_the_beginning_of_its_id(healed: Any, eventbridge: Callable[..., Any]) -> None:
    """One that has ended stays as it is; one that is none is the user's error."""
    redrive_id = eventbridge("redrives", "start", "--target", "bad", "--json").json["redrive_id"]

    ended = eventbridge("redrives", "cancel", redrive_id[:8])
    unknown = eventbridge("redrives", "cancel", "zzz")
    resumed = eventbridge("redrives", "resume", redrive_id[:8])

    assert ended.out == f"Redrive {redrive_id} has ended already: done.\n"
    end = f"Redrive {redrive_id} done: 4 dead letters taken, 4 delivered. Nothing of it is left to do.\n"
    assert (unknown.code, resumed.out) == (2, end)
    assert "there is no redrive 'zzz'" in unknown.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--all"),
        (("--all", "--rule", "x"), "takes no filter"),
        (("--name", ""), "--name is empty"),
        (("--from", " ", "--dry-run"), "--from is empty"),
        (("--all", "--rate", "0.01"), "a rate of 0.01"),
        (("--all", "--rate", "0.01", "--dry-run"), "a rate of 0.01"),
        (("--all", "--rate", "nan"), "a rate of nan"),
        (("--all", "--rate", "inf"), "a rate of inf"),
        (("--all", "--rate", "1e308"), "a rate of 1e+308"),
        (("--sql", "nonsense here"), "not an SQL condition"),
    ],
)
def test_errors_begin_nothing(
    options: tuple[str, ...], said: str, delivered: Any, eventbridge: Callable[..., Any]
) -> None:
    """An invalid option is reported, and no redrive is recorded."""
    result = eventbridge("redrives", "start", *options)

    assert result.code == 2
    assert said in result.err
    assert eventbridge("redrives", "list", "--json").json == []


def test_a_second_command_for_one_redrive_is_refused(healed: Any, eventbridge: Callable[..., Any]) -> None:
    """Each would take over the other's pushes."""
    redrive_id = eventbridge("redrives", "start", "--target", "bad", "--json").json["redrive_id"]
    with (healed.folder / "home" / f"redrive.{redrive_id}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        result = eventbridge("redrives", "resume", redrive_id)

    assert result.code == 4
    assert "is running on this machine" in result.err


def test_a_redrive_reports_what_it_did_not_take(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """A redrive that takes nothing says why: the target is disabled."""
    disabled = eventbridge("redrives", "start", "--target", "gone")

    assert " done: 0 dead letters taken, none delivered. Nothing" in disabled.out
    assert "Note: 1 dead letter of all-orders/gone was skipped: target disabled\n" in disabled.err


@pytest.mark.parametrize(
    "command",
    [
        ("dead-letters", "list"),
        ("dead-letters", "export", "dead-letters.jsonl"),
        ("redrives", "start"),
        ("redrives", "start", "--dry-run"),
        ("dead-letters", "list", "--json"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (("--target", "gon"), "no rule file defines a target 'gon'. Did you mean gone?"),
        (("--rule", "all-order"), "no rule file defines a rule 'all-order'. Did you mean all-orders?"),
        (
            ("--rule", "big-orders", "--target", "gone"),
            "the rule 'big-orders' has no target 'gone'. Targets: accounts, note",
        ),
    ],
)
def test_a_rule_or_target_that_is_none_is_an_error(
    command: tuple[str, ...], chosen: tuple[str, ...], said: str, delivered: Any, eventbridge: Callable[..., Any]
) -> None:
    """Whatever works on dead letters refuses a name that nothing has, with the nearest one, and does nothing."""
    entries = delivered.folder / "dead-letters.jsonl"
    words = [str(entries) if each == entries.name else each for each in command]
    result = eventbridge(*words, *chosen)

    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert eventbridge("redrives", "list", "--json").json == []
    assert not entries.exists()


def test_the_dead_letters_of_a_removed_rule_can_be_listed(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """A rule that the files no longer have is known from its batches: they are listed, and none is no error."""
    (delivered.rules / "orders.yaml").write_text("buses: {orders: {source: {type: embedded}}}\n")

    assert len(eventbridge("dead-letters", "list", "--rule", "all-orders", "--json").json) > 0
    assert eventbridge("dead-letters", "list", "--rule", "all-orders", "--error", "no such text", "--json").json == []
    assert eventbridge("dead-letters", "list", "--rule", "all-orderz").code == 2


def test_each_dead_letter_of_one_delivery_has_its_own_name(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """`list` prints it, `show` and `--name` take it; the delivery id alone is the newest, and the others are named."""
    listed = eventbridge("dead-letters", "list", "--target", "bad", "--json").json
    delivery = listed[0]["delivery_id"]
    for _ in range(2):
        eventbridge("redrives", "start", "--name", delivery)
    entries = eventbridge("dead-letters", "list", "--name", delivery, "--json").json
    table = eventbridge("dead-letters", "list", "--name", delivery).out
    newest = eventbridge("dead-letters", "show", delivery)
    by_name = [eventbridge("dead-letters", "show", each["name"], "--json") for each in entries]

    assert len({each["name"] for each in entries}) == len(entries) == 3
    assert all(each["name"].startswith(f"{delivery}@") and each["name"] in table for each in entries)
    assert [shown.json["batch_id"] for shown in by_name] == [each["batch_id"] for each in entries]
    assert [shown.err for shown in by_name] == ["", "", ""]
    assert entries[0]["name"] in newest.out
    assert all(each["name"] in newest.err for each in entries[1:])
    for each in entries:
        sql = f"name = '{each['name']}'"
        assert eventbridge("dead-letters", "list", "--sql", sql, "--json").json == [each]
        assert eventbridge("dead-letters", "list", "--name", each["name"], "--json").json == [each]
