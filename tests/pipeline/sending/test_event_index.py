"""Maintenance builds the index of event ids, joins it by day, rebuilds it if lost, and removes it with its events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from pipeline.delivering import Sending

from eventbridge.errors import NotFoundError
from eventbridge.model.why import Why
from eventbridge.upkeep.maintain import maintain
from eventbridge.views.trace.explain import why

DAY = timedelta(days=1).total_seconds()


def found(sending: Sending, event_id: str) -> Why:
    """Return what is known of an id of which there is one message."""
    response = why(sending.runtime, event_id)
    assert len(response.events) == 1
    return response


def test_an_indexed_event_is_found_in_its_file_alone(sending: Sending) -> None:
    """Of many batches one file is read; what was landed since the last run is looked through beside it."""
    runtime = sending.begin(2, crm="/healthy/crm")
    for _ in range(4):
        sending.deliver()
        sending.publish(2)
    before = found(sending, "3")

    maintain(runtime)

    after = found(sending, "3")
    assert (before.searched.files, after.searched.files) == (8, 1)
    assert after.events == before.events
    assert runtime.ledger.event_index.batches_to_index(10) == []
    sending.deliver()
    assert found(sending, "9").searched.files <= 2


def test_the_files_of_a_day_that_is_over_are_joined(sending: Sending) -> None:
    """One file a day remains, whose rows are those of all, and the store holds no other."""
    runtime = sending.begin(2, crm="/healthy/crm")
    for _ in range(3):
        sending.deliver()
        maintain(runtime)
        sending.publish(2)
    assert len(runtime.ledger.event_index.files()) == 3

    sending.site.clock.advance(DAY)
    maintain(runtime)

    (file,) = runtime.ledger.event_index.files()
    assert file.rows == 6
    assert len(runtime.store.list("index/")) == 2
    assert [found(sending, str(number)).searched.files for number in range(1, 7)] == [1] * 6


def test_malformed_events_and_repeated_ids_are_indexed(sending: Sending) -> None:
    """By the id that a message claims; an id that came twice is found twice."""
    runtime = sending.begin(1, b'{"id": "torn", ', crm="/healthy/crm")
    sending.deliver()
    sending.publish(sending.order(1))
    sending.deliver()
    maintain(runtime)

    assert [each.status for each in why(runtime, "torn").events] == ["malformed"]
    assert [each.status for each in why(runtime, "1").events] == ["valid", "valid"]


@pytest.mark.parametrize("harm", ["lost", "damaged"])
def test_a_lost_index_is_reported_and_rebuilt(sending: Sending, harm: str) -> None:
    """Never a wrong result: that day is looked through, until maintenance has indexed it again."""
    runtime = sending.begin(2, crm="/healthy/crm")
    sending.deliver()
    maintain(runtime)
    (file,) = runtime.ledger.event_index.files()
    if harm == "lost":
        runtime.store.delete(file.path)
    else:
        runtime.store.put(file.path, b"no Parquet")

    response = found(sending, "2")

    assert "of that day were searched" in response.notes[0]
    with pytest.raises(NotFoundError, match="of that day were searched"):
        why(runtime, "nobody")
    if harm == "lost":
        maintain(runtime)
        assert found(sending, "2").notes == ()


def test_the_index_goes_with_the_events(sending: Sending) -> None:
    """Once no event of a day is archived, no file of its index is left, in the ledger or in the store."""
    runtime = sending.begin(2, crm="/healthy/crm", settings={"retention_deliveries": 86400})
    sending.deliver()
    maintain(runtime)
    assert runtime.store.list("index/")

    sending.site.clock.advance(40 * DAY)
    maintain(runtime)

    assert runtime.ledger.event_index.files() == []
    assert runtime.store.list("index/") == []


def test_an_unrecorded_file_is_removed_once_it_is_old(sending: Sending) -> None:
    """What a run left that died between writing and recording; a fresh one stays: its writer may be at work."""
    runtime = sending.begin(2, crm="/healthy/crm")
    sending.deliver()
    maintain(runtime)
    (file,) = runtime.ledger.event_index.files()
    runtime.ledger.event_index.forget_day(file.day)

    maintain(runtime)
    assert runtime.store.exists(file.path)
    sending.site.clock.advance(2 * DAY)
    maintain(runtime)

    assert not runtime.store.exists(file.path)
    assert found(sending, "1").searched.files == 1


def test_a_run_that_dies_anywhere_leaves_no_wrong_index(
    sending: Sending, dying_everywhere: Callable[..., Iterator[Any]]
) -> None:
    """Whatever of the index was written: every event is found, also before the next run, which finishes it."""
    for _ in range(2):
        sending.publish(2)
        sending.rules(crm="/healthy/crm")
        sending.deliver()
    maintain(sending.runtime)
    sending.publish(2)
    sending.deliver()
    sending.site.clock.advance(DAY)

    for wreck in dying_everywhere(sending.site, maintain):
        assert [len(why(wreck.runtime, str(number)).events) for number in range(1, 7)] == [1] * 6
        maintain(wreck.runtime)
        assert [why(wreck.runtime, str(number)).searched.files for number in range(1, 7)] == [1] * 6
        assert len(wreck.runtime.ledger.event_index.files()) == 1
