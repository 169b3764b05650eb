"""Every kind of thing has `list` and `show`, which agree with each other."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from typer.main import get_command

from eventbridge.cli import app
from eventbridge.config.settings import Settings
from eventbridge.control.queues import receive
from eventbridge.runtime.open import open_runtime
from eventbridge.views.trace import show

LISTED = [
    "rules", "buses", "targets", "queues", "dead-letters", "redrives", "replays", "batches", "tokens", "schemas",
    "plugins", "quality",
]  # fmt: skip


@pytest.mark.parametrize("group", LISTED)
def test_a_group_has_list_and_show(group: str) -> None:
    """A user who knows one group knows the words of the others."""
    assert {"list", "show"} <= set(get_command(app).commands[group].commands)


def test_every_time_option_is_from_or_to() -> None:
    """No command names a time in another way."""
    options = {option for command in _commands(get_command(app)) for each in command.params for option in each.opts}

    assert not options & {"--since", "--until", "--start", "--end", "--after", "--before"}


def test_buses_list_and_show_agree(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """A bus is listed with its rules and lag, and shown with its partitions."""
    (listed,) = eventbridge("buses", "list", "--json").json
    shown = eventbridge("buses", "show", "orders", "--json").json

    assert (listed["bus"], listed["rules"], listed["runners"]) == ("orders", 2, ["orders"])
    assert shown == listed
    assert len(shown["partitions"]) == 4
    assert "Partitions, in events" in eventbridge("buses", "show", "orders").out
    assert "Did you mean orders?" in eventbridge("buses", "show", "order").err


def test_queues_list_and_show_agree(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """A queue is listed with what waits and what consumers have, and shown with its targets."""
    queue = "{type: queue, queue: work}"
    more = f"rules:\n  queued:\n    bus: orders\n    pattern: {{}}\n    targets: {{pull: {queue}, spare: {queue}}}\n"
    (shop.rules / "queued.yaml").write_text(more)
    eventbridge("events", "publish", "orders", shop.orders(1, 2))
    shop.deliver()
    with closing(open_runtime(Settings.from_mapping(shop.environ), {})) as runtime:
        receive(runtime, runtime.rule_set(), "work", 1)
    (listed,) = eventbridge("queues", "list", "--json").json
    shown = eventbridge("queues", "show", "work")

    assert eventbridge("queues", "show", "work", "--json").json == listed
    assert (listed["ready"], listed["received"], listed["targets"]) == (3, 1, ["queued/pull", "queued/spare"])
    assert re.search(r"work +2 +3 +1 +2", eventbridge("queues", "list").out)
    assert re.search(r"waiting +3\nin flight +1\noldest +2", shown.out)
    assert re.search(r"queued/spare +2 +0 +0 +0 +0 +2", shown.out)
    assert "Did you mean work?" in eventbridge("queues", "show", "works").err


def test_batches_list_and_show_agree(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """The newest batch is listed first; it is shown with its offsets and its reconciliation."""
    newest = eventbridge("batches", "list", "--json").json[0]
    shown = eventbridge("batches", "show", newest["batch_id"][:13], "--json").json

    assert shown["batch"] == newest
    assert shown["reconciliation"]["differences"] == []
    assert "every event is accounted for" in eventbridge("batches", "show", newest["batch_id"]).out
    assert newest["batch_id"] in eventbridge("batches", "list").out


def test_a_target_is_shown_with_its_responses(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """The state is that of the list; the newest responses follow."""
    listed = next(each for each in eventbridge("targets", "list", "--json").json if each["target"] == "bad")
    shown = eventbridge("targets", "show", "all-orders/bad", "--json").json

    assert listed.items() <= shown.items()
    assert shown["responses"][0]["code"] == 400
    assert "Newest responses" in eventbridge("targets", "show", "all-orders", "bad").out


def test_a_redrive_is_shown_like_in_the_list(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """By its id or the beginning of it."""
    redriven = eventbridge("redrives", "start", "--target", "bad", "--json").json
    (listed,) = eventbridge("redrives", "list", "--json").json

    assert eventbridge("redrives", "show", redriven["redrive_id"][:8], "--json").json == listed
    assert "target bad" in eventbridge("redrives", "show", redriven["redrive_id"]).out


def test_a_token_is_shown_without_its_secret(shop: Any, eventbridge: Callable[..., Any]) -> None:
    """The fields are those of the list."""
    secret = eventbridge("tokens", "create", "crm", "--scope", "read", "--json").json["token"]
    shown = eventbridge("tokens", "show", "crm")

    assert "read" in shown.out
    assert secret not in shown.out
    assert eventbridge("tokens", "show", "crm", "--json").json in eventbridge("tokens", "list", "--json").json
    assert "Did you mean crm?" in eventbridge("tokens", "show", "cmr").err


def test_events_are_found_by_their_attributes(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """All conditions hold at once; --limit says that there are more."""
    found = eventbridge("events", "find", "--type", "order.placed", "--from", "1h", "--limit", "2")

    assert found.out.startswith("Events, times in UTC\n")
    assert "there are more than 2" in found.err
    assert len(eventbridge("events", "find", "--limit", "2", "--json").json) == 2
    assert eventbridge("events", "find", "--type", "order.lost").out == "Events, times in UTC: none\n"
    assert eventbridge("events", "find", "--to", "1h", "--json").json == []


def test_an_event_is_shown_with_its_payload(delivered: Any, eventbridge: Callable[..., Any]) -> None:
    """From the archive once it has landed; from its bus before."""
    landed = eventbridge("events", "show", "o1", "--json").json
    eventbridge("events", "publish", "orders", delivered.orders(77, id="late"))
    waiting = eventbridge("events", "show", "late")

    assert (landed["landed"], '"id": "o1"' in landed["event"]) == (True, True)
    assert "not landed yet" in waiting.out
    assert '"amount": 77' in waiting.out
    assert eventbridge("events", "show", "nobody").code == 2


@pytest.mark.parametrize(("event", "file"), [("o1", "*.parquet"), ("late", "orders.sqlite")])
def test_an_unreadable_payload_is_a_warning_and_exit_code_1(
    event: str, file: str, delivered: Any, eventbridge: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason, for an archive file and for a bus that break after the event was found."""
    eventbridge("events", "publish", "orders", delivered.orders(77, id="late"))
    traced = show.why

    def broken_after(*arguments: Any, **named: Any) -> Any:
        found = traced(*arguments, **named)
        for each in delivered.folder.rglob(file):
            each.write_bytes(b"nonsense" * 1_000)
        return found

    monkeypatch.setattr(show, "why", broken_after)
    shown = eventbridge("events", "show", event, "--json")

    assert (shown.code, shown.json["event"]) == (1, None)
    assert f"Warning: the payload cannot be read: {shown.json['error']}\n" in shown.err


def _commands(group: Any) -> list[Any]:
    children = getattr(group, "commands", None)
    return [group] if children is None else [each for child in children.values() for each in _commands(child)]
