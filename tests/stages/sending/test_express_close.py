"""The close of a window: events go on in the next one, and the books are done whatever becomes of the closer."""

from __future__ import annotations

import time
from collections import Counter

import psutil
import pytest
from stages.delivering import Sending, http
from stages.shifts import a_close_that_waits, a_process, a_shift, crm_requests, ids, quick_windows, until

from eventbridge.stages.operate import closer, express_window
from eventbridge.stages.operate.audit import audit
from eventbridge.stages.operate.closer import Closer


def test_events_are_delivered_while_a_window_is_closed(sending: Sending) -> None:
    """They are the next window's, which gets its batch once the former is committed."""
    quick_windows(sending, crm="/healthy/crm")
    with a_close_that_waits() as (closes, goes_on), a_shift(sending):
        sending.publish(30)
        until(closes.is_set)
        sending.publish(12)
        until(lambda: len(sending.requests()) == 42)
        assert sending.work.ledger.batches(state="open") == []
        goes_on.set()
        until(lambda: sending.work.ledger.batches(state="open"))
        sending.publish(1)
        until(lambda: len(sending.requests()) == 43)

    assert [batch.state for batch in sending.work.ledger.batches()] == ["committed"] * 2
    assert set(ids(sending).values()) == {1}
    assert audit(sending.work).differences == ()


def test_a_window_that_is_full_goes_on_while_the_former_is_closed(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To end it would be to wait for that close, and to deliver nothing until then."""
    monkeypatch.setattr(express_window, "_WINDOW_EVENTS", 40)
    quick_windows(sending, crm="/healthy/crm")
    with a_close_that_waits() as (closes, goes_on), a_shift(sending):
        sending.publish(40)
        until(closes.is_set)
        sending.publish(45)
        until(lambda: len(sending.requests()) == 85)
        sending.publish(5)
        until(lambda: len(sending.requests()) == 90)
        goes_on.set()

    assert [batch.state for batch in sending.work.ledger.batches()] == ["committed"] * 2
    assert set(ids(sending).values()) == {1}
    assert audit(sending.work).differences == ()


def test_rules_that_change_while_a_window_is_closed_hold_for_what_came_meanwhile(sending: Sending) -> None:
    """The next window starts over with them: what was sent by the old ones comes again, and nothing is lost."""
    quick_windows(sending, crm="/healthy/crm")
    with a_close_that_waits() as (closes, goes_on), a_shift(sending):
        sending.publish(30)
        until(closes.is_set)
        sending.publish(12)
        until(lambda: len(sending.requests()) == 42)
        quick_windows(sending, crm="/healthy/crm", erp="/healthy/erp")
        goes_on.set()
        until(lambda: len(sending.requests()) == 42 + 24)

    paths = Counter(each["path"].rpartition("/")[2] for each in sending.requests())
    assert paths == {"crm": 54, "erp": 12}
    assert Counter(ids(sending).values()) == {1: 42, 2: 12}
    assert audit(sending.work).differences == ()


def test_the_next_window_begins_while_a_target_of_the_former_hangs(sending: Sending) -> None:
    """Its neighbours' deliveries go on, and what it has no answer to is not sent again."""
    quick_windows(sending, hanging=http("/hang/hanging", timeout='"20s"'), crm="/healthy/crm")
    with a_shift(sending):
        for number in range(1, 5):
            sending.publish(15)
            until(lambda number=number: len(crm_requests(sending)) == 15 * number)
            if number % 2 == 0:
                until(lambda number=number: len(sending.work.ledger.batches()) > number // 2)

    assert set(ids(sending).values()) == {1}
    assert audit(sending.work).differences == ()


def test_a_target_that_hangs_in_the_former_window_has_one_run(
    sending: Sending, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the next window has for it waits until the former gave up: its limits hold for both together."""
    monkeypatch.setattr(express_window, "_PATIENCE_SECONDS", 6.0)
    hanging = http("/hang/hanging", timeout='"20s"', max_in_flight=1)
    quick_windows(sending, hanging=hanging, crm="/healthy/crm")
    with a_shift(sending):
        began = time.monotonic()
        count = 0
        while time.monotonic() - began < 2:  # a window lasts for one
            count += 1
            sending.publish(1)
            until(lambda count=count: len(crm_requests(sending)) == count)
        assert [batch.state for batch in sending.work.ledger.batches()] == ["open"], "the former is closed"
        assert len(sending.requests()) == count + 1
        monkeypatch.setattr(express_window, "_PATIENCE_SECONDS", 0.5)

    assert set(ids(sending).values()) == {1}
    assert audit(sending.work).differences == ()


def test_a_closer_that_is_killed_loses_nothing_and_dies_with_its_shift(sending: Sending) -> None:
    """The shift does those books itself, sends nothing twice, and has another closer for the next."""
    quick_windows(sending, crm="/healthy/crm")

    def closers() -> list[psutil.Process]:
        return [each for each in psutil.Process(child.pid).children() if "closer" in " ".join(each.cmdline())]

    with a_process(sending) as child:
        sending.publish(160)
        until(closers)
        (first,) = closers()
        first.kill()
        until(lambda: len(sending.work.ledger.batches(state="committed")) == 1, 60)
        sending.publish(160)
        until(closers)
        (second,) = closers()
        until(lambda: len(sending.work.ledger.batches(state="committed")) == 2, 60)

    psutil.wait_procs([second], timeout=10)
    assert not second.is_running()
    assert second != first
    assert set(ids(sending).values()) == {1}
    assert len(ids(sending)) == 320
    assert audit(sending.work).differences == ()


def test_a_closer_that_hangs_is_given_up(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    """The books are left to who asked for them, and its process is ended."""
    sending.rules(crm="/healthy/crm")
    sending.publish(1)
    batch_id = sending.deliver_batch()
    assert batch_id is not None
    monkeypatch.setattr(closer, "_PATIENCE_SECONDS", 0.05)  # its process takes longer to start

    assert not Closer(sending.work.settings).do_books(batch_id, None)

    assert [each for each in psutil.Process().children() if "closer" in " ".join(each.cmdline())] == []
