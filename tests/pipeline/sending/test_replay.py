"""A replay redelivers archived events, one batch at a time, and everything is reconciled."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from demo.receiver import Receiver
from pipeline.delivering import REFUSED, Sending, http, keeps, rules

from eventbridge.control.consecutive_batches import cancel_replay, deliver_replay, pause_replay, resume_replay
from eventbridge.errors import UserError
from eventbridge.event.ids import delivery_id, delivery_id_text
from eventbridge.model.redelivery import Replay
from eventbridge.repair.audit import audit
from eventbridge.repair.repair import repair_batch
from eventbridge.replay.account import account_of
from eventbridge.replay.plan import begin_replay, plan_replay
from eventbridge.replay.request import WrittenReplayRequest
from eventbridge.replay.survey import survey
from eventbridge.routing.task import InProcessRouter
from eventbridge.store.parquet import read_table
from eventbridge.testing.store import CountingStore


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """Provide a receiver that also records headers and bodies."""
    with Receiver(tmp_path_factory.mktemp("receiver") / "requests.jsonl", whole=True) as running:
        yield running


NO_RETRY = "{policy: custom, max_retries: 0}"


def begin(sending: Sending, run: str = "run", **options: Any) -> Replay:
    """Begin a replay of the last hour of bus orders."""
    runtime = sending.runtime
    chosen = {"since": "1h", "until": None} | options
    return begin_replay(
        runtime, WrittenReplayRequest("orders", **chosen).read(runtime.ledger.now(), runtime.rule_set()), run
    )


def deliver(sending: Sending, replay: Replay) -> int:
    """Deliver a replay until it has ended or is paused; return the number of batches."""
    return deliver_replay(sending.runtime, replay.replay_id, InProcessRouter(sending.runtime.store))


def replay(sending: Sending, run: str = "run", **options: Any) -> Replay:
    """Begin a replay, deliver all of it, assert that its batches are reconciled, and return it."""
    begun = begin(sending, run, **options)
    deliver(sending, begun)
    assert audit(sending.runtime).differences == ()
    return sending.runtime.ledger.replays.get(begun.replay_id)


def landed(sending: Sending, count: int, **targets: str) -> None:
    """Have so many orders delivered, or refused, and a moment pass."""
    sending.begin(count, **targets)
    sending.deliver()
    sending.site.clock.advance(1)


def event_of(request: dict[str, Any]) -> dict[str, Any]:
    """Return the event that a request carried."""
    found: dict[str, Any] = json.loads(request["body"])
    return found


def ids(sending: Sending) -> Counter[str]:
    """Return how many times each event was received."""
    return Counter(event_of(request)["id"] for request in sending.requests())


def test_archived_events_are_delivered_again_under_new_ids(sending: Sending) -> None:
    """Every event is delivered again with an id derived from the replay's id, which a header names."""
    landed(sending, 3, crm="/healthy/crm")

    done = replay(sending)

    first, again = sending.requests()[:3], sending.requests()[3:]
    assert done.state == "done"
    assert set(ids(sending).values()) == {2}
    assert {each["webhook_id"] for each in first}.isdisjoint(each["webhook_id"] for each in again)
    assert {each["headers"]["eventbridge-replay-id"] for each in again} == {done.replay_id}
    assert not any("eventbridge-replay-id" in each["headers"] for each in first)
    event = event_of(again[0])
    expected = delivery_id("orders", event["source"], event["id"], "orders", "crm", done.replay_id)
    assert again[0]["webhook_id"] == delivery_id_text(expected)
    account = account_of(sending.runtime, done)
    assert (account.batches, account.read, account.taken, account.outcomes) == (1, 3, 3, {"delivered": 3})


def test_an_hour_out_of_a_year_lists_that_hour_only(sending: Sending) -> None:
    """No listing finds a file of the archive, only the newest manifest; of the archive only the hour is read."""
    landed(sending, 2, crm="/healthy/crm")
    times = [sending.runtime.ledger.now()]
    for _ in range(12):
        sending.site.clock.advance(30 * 86_400)
        times.append(sending.runtime.ledger.now())
        sending.publish(2)
        sending.deliver()
    sending.site.clock.advance(3_600)
    hour = times[6].replace(minute=0, second=0, microsecond=0)
    counting = CountingStore(sending.runtime.store)
    runtime = replace(sending.runtime, store=counting)
    request = WrittenReplayRequest("orders", since=hour.isoformat(), until=str(hour + timedelta(hours=1))).read(
        runtime.ledger.now(), runtime.rule_set()
    )

    begun = begin_replay(runtime, request, "run")
    deliver_replay(runtime, begun.replay_id, InProcessRouter(counting))

    archived = {f"{path.partition('/date=')[2][:18]}" for path in counting.read if path.startswith("buffer/")}
    assert [path.partition("/")[0] for path in counting.listed] == ["manifests"]
    assert account_of(runtime, begun).read == 2
    assert len(runtime.ledger.archive.files("orders", times[0], runtime.ledger.now(), begun.started_at)) > 12
    assert archived == {f"{hour:%Y-%m-%d/hour=%H}", f"{begun.started_at:%Y-%m-%d/hour=%H}"}


def test_deliveries_keep_their_ids_on_request(sending: Sending) -> None:
    """On request deliveries keep their ids, so that a receiver can drop them, and no header names the replay."""
    landed(sending, 2, crm="/healthy/crm")

    replay(sending, new_ids=False)

    assert set(Counter(each["webhook_id"] for each in sending.requests()).values()) == {2}
    assert not any("eventbridge-replay-id" in each["headers"] for each in sending.requests())


def test_a_replay_is_several_batches_and_ends(sending: Sending) -> None:
    """Each takes what a batch may hold, wherever files end; every archived event is looked through once."""
    sending.begin(7, settings={"batch_max_events": 3}, crm="/healthy/crm")
    sending.deliver()
    sending.site.clock.advance(1)
    begun = begin(sending)

    assert deliver(sending, begun) == 3
    assert set(ids(sending).values()) == {2}
    assert audit(sending.runtime).differences == ()


def test_only_events_of_the_time_are_taken(sending: Sending) -> None:
    """From and to are compared with when a batch was planned: side by side two replays take every event once."""
    clock = sending.site.clock
    landed(sending, 2, crm="/healthy/crm")
    clock.advance(600)
    sending.publish(3)
    sending.deliver()
    clock.advance(1)
    between = (clock() - timedelta(seconds=300)).isoformat()

    assert account_of(sending.runtime, replay(sending, "late", since=between)).taken == 3
    assert account_of(sending.runtime, replay(sending, "early", until=between)).taken == 2


def test_a_pattern_rules_and_targets_choose(sending: Sending) -> None:
    """A replay delivers only events that its pattern matches, for the named rules and to the named targets."""
    landed(sending, 5, crm="/healthy/crm", bills="/healthy/bills")
    wanted = sorted(ids(sending))[:2]

    done = replay(sending, pattern=json.dumps({"id": wanted}), targets=["bills"], rules=["orders"])

    again = sending.requests()[10:]
    assert sorted(event_of(each)["id"] for each in again) == wanted
    assert {each["path"] for each in again} == {"/healthy/bills"}
    assert (account_of(sending.runtime, done).read, account_of(sending.runtime, done).taken) == (5, 2)


def test_delivered_events_are_left_out_on_request(sending: Sending) -> None:
    """On request the target that accepted the events gets none, and the one that refused them gets all."""
    landed(sending, 3, crm="/healthy/crm", bills=http(REFUSED, retry=NO_RETRY))
    sending.rules(crm="/healthy/crm", bills="/healthy/bills")

    replay(sending, skip_delivered=True)

    assert Counter(each["path"] for each in sending.requests()) == {"/healthy/crm": 3, "/healthy/bills": 3}


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("outcome = 'dead_lettered' AND code = 503", 3),
        ("outcome = 'dead_lettered' AND code = 400", 0),
        ("outcome = 'delivered'", 3),
        ("delivered_at > TIMESTAMPTZ '2020-01-01'", 3),
        ("attempts = 1 AND reason = 'maximum_retry_attempts'", 3),
        ("event->>'$.id' = event_id AND target = 'crm'", 3),
        ("outcome IS NULL", 0),
        ("true -- all", 6),
    ],
)
def test_a_condition_over_event_and_past_outcome_chooses(condition: str, count: int, sending: Sending) -> None:
    """Per target: of what was refused by 503 and dead-lettered, say, and only to the target that refused it."""
    landed(sending, 3, crm="/healthy/crm", bills=http("/status/503", retry=NO_RETRY))

    done = replay(sending, sql=condition)

    assert account_of(sending.runtime, done).taken == count


@pytest.mark.parametrize(
    "condition", ["outcom = 1", "true) OR (true", "1; SELECT 2", "DROP TABLE events", "count(*) > 1"]
)
def test_an_invalid_condition_is_reported_before_anything_is_recorded(condition: str, sending: Sending) -> None:
    """An invalid condition is reported with the existing columns before anything is recorded."""
    landed(sending, 1, crm="/healthy/crm")

    with pytest.raises(UserError, match="SQL condition"):
        begin(sending, sql=condition)

    assert sending.runtime.ledger.replays.all() == []


def test_an_event_delivered_by_a_retry_counts_as_delivered(sending: Sending) -> None:
    """Deliveries are followed through the batches that took them up later."""
    landed(sending, 2, crm=http(REFUSED))
    sending.rules(crm="/healthy/crm")
    for _ in range(2):  # the first run only probes the target that had failed
        sending.site.clock.advance(3601)
        sending.deliver()
    assert len(sending.requests()) == 2

    done = replay(sending, since="1d", skip_delivered=True)

    assert len(sending.requests()) == 2
    assert account_of(sending.runtime, done).taken == 0


def test_events_are_routed_by_the_original_rules_on_request(sending: Sending) -> None:
    """With the current rules a new target gets them; with the old rules the old one does, though no file names it."""
    landed(sending, 2, crm="/healthy/crm")
    sending.rules(bills="/healthy/bills")

    replay(sending, "current")
    replay(sending, "original", as_of="original")

    assert Counter(each["path"] for each in sending.requests()) == {"/healthy/crm": 4, "/healthy/bills": 2}


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"rules": ["ordres"]}, r"had no rule 'ordres' at that time. Did you mean orders\?"),
        ({"targets": ["bills"]}, "had a target 'bills' at that time"),
    ],
)
def test_a_name_that_did_not_exist_then_is_refused(sending: Sending, named: dict[str, Any], said: str) -> None:
    """A rule or target that did not exist then is rejected, even if the current files have it."""
    landed(sending, 2, crm="/healthy/crm")
    sending.rules(bills="/healthy/bills")

    with pytest.raises(UserError, match=said):
        begin(sending, as_of="original", **named)
    assert sending.runtime.ledger.replays.all() == []


def test_a_rule_with_a_runner_of_its_own_gets_what_others_landed(sending: Sending) -> None:
    """A rule that was not there, on a runner that never ran, is replayed from the archive of the bus; nothing twice."""
    landed(sending, 4, crm="/healthy/crm")
    late = rules({"audit": "/healthy/audit"}, rule="late", runner="night").partition("rules:\n")[2]
    sending.write(rules({"crm": "/healthy/crm"}) + late)

    replay(sending, rules=["late"])

    assert Counter(each["path"] for each in sending.requests()) == {"/healthy/crm": 4, "/healthy/audit": 4}


def test_a_paused_replay_plans_nothing_until_it_continues(sending: Sending) -> None:
    """And a cancelled one never does, but for the batch that it had planned; both under the same id."""
    sending.begin(4, settings={"batch_max_events": 2}, crm="/healthy/crm")
    sending.deliver()
    sending.site.clock.advance(1)
    begun = begin(sending)
    runtime = sending.runtime

    assert pause_replay(runtime, begun.replay_id)
    assert deliver(sending, begun) == 0
    assert not pause_replay(runtime, begun.replay_id)
    assert resume_replay(runtime, begun.replay_id)
    assert deliver(sending, begun) == 2
    assert not cancel_replay(runtime, begun.replay_id)
    other = begin(sending, "other")
    assert cancel_replay(runtime, other.replay_id)
    assert (deliver(sending, other), runtime.ledger.replays.get(other.replay_id).state) == (0, "cancelled")
    assert set(ids(sending).values()) == {2}
    third = begin(sending, "third")
    planned = plan_replay(runtime, third.replay_id).batch_id
    assert planned is not None
    assert cancel_replay(runtime, third.replay_id)
    assert (deliver(sending, third), runtime.ledger.batches.get(planned).state) == (1, "committed")
    assert Counter(ids(sending).values()) == {2: 2, 3: 2}


def test_a_run_that_asks_again_gets_its_replay(sending: Sending) -> None:
    """Whatever it requests then, and nothing is taken twice."""
    landed(sending, 1, crm="/healthy/crm")
    done = replay(sending)

    assert begin(sending, targets=["crm"]) == done
    assert deliver(sending, done) == 0
    assert set(ids(sending).values()) == {2}


def test_a_dry_run_counts_and_shows_samples(sending: Sending) -> None:
    """Per target, by the current rules, and nothing is recorded or sent."""
    landed(sending, 5, crm="/healthy/crm")
    runtime = sending.runtime

    found = survey(runtime, WrittenReplayRequest("orders", since="1h").read(runtime.ledger.now(), runtime.rule_set()))

    assert (found.read, found.taken, found.deliveries) == (5, 5, {"orders/crm": 5})
    assert len(found.samples["orders/crm"]) == 3
    assert set(found.samples["orders/crm"]) <= set(ids(sending))
    assert (runtime.ledger.replays.all(), len(sending.requests())) == ([], 5)


def test_the_rate_of_a_replay_counts_every_second(sending: Sending) -> None:
    """All targets of a replay together get no more than its rate, whatever the size of its batches."""
    landed(sending, 12, crm="/healthy/crm", bills="/healthy/bills")

    replay(sending, rate=8.0)

    again = sending.requests()[24:]
    assert len(again) == 24
    assert keeps([datetime.fromisoformat(each["at"]) for each in again], 8.0)


def test_age_and_attempts_count_from_the_replay(sending: Sending) -> None:
    """An event of an hour ago that fails is tried again as a new one would be, by the rule's policy."""
    landed(sending, 1, crm="/healthy/crm")
    sending.site.clock.advance(1800)
    sending.rules(crm=http(REFUSED))

    done = replay(sending)

    (waiting,) = [row for row in sending.runtime.ledger.pending.find() if row.state != "closed"]
    assert waiting.attempts == 1
    assert account_of(sending.runtime, done).outcomes == {"pending": 1}
    sending.rules(crm="/healthy/crm")
    sending.site.clock.advance((waiting.due_at - sending.runtime.ledger.now()).total_seconds() + 1)
    assert sending.retry() is not None
    assert account_of(sending.runtime, done).outcomes == {"delivered": 1}
    assert sending.requests()[-1]["headers"]["eventbridge-replay-id"] == done.replay_id
    assert audit(sending.runtime).differences == ()


def test_the_inputs_of_a_replay_are_rebuilt(sending: Sending) -> None:
    """A lost buffer file of a replay is rebuilt from the archive with the same rows."""
    landed(sending, 3, crm="/healthy/crm")
    done = replay(sending, pattern=json.dumps({"id": sorted(ids(sending))[:2]}))
    runtime = sending.runtime
    batch_id = next(each.batch_id for each in runtime.ledger.replays.searched(done.replay_id) if each.batch_id)
    (file,) = runtime.ledger.files.list_for_batch(batch_id, "buffer")
    before = read_table(runtime.store, str(file.path))
    runtime.store.delete(str(file.path))

    assert audit(runtime).differences
    repair_batch(runtime, batch_id, InProcessRouter(runtime.store), dry_run=False)

    assert read_table(runtime.store, str(file.path)).equals(before)
    assert audit(runtime).differences == ()


def test_an_audit_reports_what_a_replay_left_out(sending: Sending) -> None:
    """A part of the archive that was never read is a difference."""
    landed(sending, 3, crm="/healthy/crm")
    done = replay(sending)
    runtime = sending.runtime

    with runtime.ledger.database.writing() as connection:
        connection.exec_driver_sql("DELETE FROM replayed")

    reported = audit(runtime).differences
    assert any(done.replay_id in each and "must be searched" in each for each in reported)


def test_an_audit_counts_replayed_events_beside_the_offsets(sending: Sending) -> None:
    """Replayed events do not count as offsets from the bus, and the totals are consistent."""
    landed(sending, 3, crm="/healthy/crm")
    replay(sending)
    events = audit(sending.runtime).events

    assert (events["range_total"], events["from_archive"], events["read"]) == (3, 3, 6)
    assert events["range_total"] + events["from_archive"] == events["gaps"] + events["read"]


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"since": None}, "from is missing"),
        ({"since": "yesterday"}, "is not a time"),
        ({"since": "1h", "until": "2h"}, "from must be before to"),
        ({"rules": ["order"]}, "Did you mean orders?"),
        ({"targets": ["crn"]}, "Did you mean crm?"),
        ({"pattern": "{"}, "is not JSON"),
        ({"pattern": '{"type": [{"prefx": "a"}]}'}, "prefix"),
        ({"pattern": '{"detail-type": ["a"]}'}, "detail-type"),
        ({"as_of": "tomorrow"}, "current, or original"),
        ({"rate": 0.0}, "cannot be kept"),
    ],
)
def test_an_invalid_request_is_reported_before_anything_is_recorded(
    options: dict[str, Any], reported: str, sending: Sending
) -> None:
    """The error says what is wrong and what to write instead."""
    landed(sending, 1, crm="/healthy/crm")

    with pytest.raises(UserError, match=reported.replace("?", r"\?")):
        begin(sending, **options)

    assert sending.runtime.ledger.replays.all() == []
