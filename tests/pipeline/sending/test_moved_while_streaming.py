"""A rule can move between two runners that each have a streaming task."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from pipeline.delivering import Sending, http, rules
from pipeline.streaming_tasks import until

from eventbridge.pipeline.deliver import deliver_until_idle
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.repair.audit import audit
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.stop import Stop
from eventbridge.streaming.task import deliver_streaming

_RUNNERS = ("one", "two")
_OTHERS = """\
  {runner}-log:
    bus: orders
    runner: {runner}
    pattern: {{type: [order.placed]}}
    targets:
      log: {target}
"""


def write(sending: Sending, runner: str, **intervals: str) -> None:
    """Write the rule `orders`, of a runner, and one that stays with each; `intervals` say when theirs are closed."""
    text = rules({"crm": "/healthy/crm"}, runner=runner)
    text += "".join(_OTHERS.format(runner=each, target=http(f"/healthy/{each}")) for each in _RUNNERS)
    text += "runners:\n"
    text += "".join(
        f"  {each}: {{mode: streaming, streaming: {{batch_interval: {intervals[each]}}}}}\n" for each in _RUNNERS
    )
    sending.write(text)


def got(sending: Sending, target: str) -> list[str]:
    """Return the delivery ids that a target got, in order."""
    return [each["webhook_id"] for each in sending.requests() if each["path"] == f"/healthy/{target}"]


@contextmanager
def streaming_tasks(sending: Sending, *runners: str) -> Iterator[None]:
    """Deliver for runners, each in its own streaming task, until the block ends."""
    stop, opened = Stop(), len(runners)
    with ThreadPoolExecutor(opened) as pool:
        running = [pool.submit(deliver_streaming, sending.site.reopen(), runner, stop) for runner in runners]
        try:
            until(
                lambda: (
                    any(e.done() for e in running) or len(sending.runtime.ledger.batches.find(state="open")) == opened
                )
            )
            yield
        finally:
            stop.set()
    for each in running:
        each.result()


def test_a_rule_moves_between_two_streaming_tasks_under_load(sending: Sending) -> None:
    """There and back, whichever runner is further by then: it misses nothing and gets nothing twice, and no neighbour
    stops.
    """
    write(sending, "one", one="1s", two="3s")
    published = 0

    def publish_until_it_is(runner: str) -> None:
        nonlocal published
        ledger = sending.runtime.ledger
        pair, deadline = ("orders", "crm"), threading.Event()
        for _ in range(600):
            sending.publish(10)
            published += 10
            deadline.wait(0.1)
            was = ledger.assignments.all().get(pair)
            if was is not None and (was.runner, was.left) == (runner, ()):
                return
        raise AssertionError(f"{runner} never took the rule")

    with streaming_tasks(sending, *_RUNNERS):
        publish_until_it_is("one")
        for runner in ("two", "one", "two"):
            write(sending, runner, one="1s", two="3s")
            publish_until_it_is(runner)
        sending.publish(10)
        published += 10
        for target in ("crm", *_RUNNERS):
            until(lambda target=target: len(got(sending, target)) >= published)  # type: ignore[misc]

    for target in ("crm", *_RUNNERS):
        assert len(got(sending, target)) == len(set(got(sending, target))) == published
    assert audit(sending.runtime).differences == ()


def test_a_runner_waits_for_the_batch_of_the_one_that_takes_its_rule(sending: Sending) -> None:
    """The end of that batch is unknown: continuing without the rule might skip events, with it repeat them."""
    write(sending, "one", one="1m", two="1m")
    sending.publish(5)
    for runner in _RUNNERS:
        deliver_until_idle(sending.runtime, runner, InProcessRouter(sending.runtime.store))
    with streaming_tasks(sending, "two"):
        sending.publish(7)
        until(lambda: len(got(sending, "two")) == 12)
        write(sending, "two", one="1m", two="1m")
        waits = listen(sending.runtime, "one")
        was = sending.runtime.ledger.assignments.all()["orders", "crm"]
    for runner in (*_RUNNERS, *_RUNNERS):
        deliver_until_idle(sending.runtime, runner, InProcessRouter(sending.runtime.store))

    assert (waits, was.runner, was.left) == (None, "one", ())
    assert sending.runtime.ledger.assignments.all()["orders", "crm"].runner == "two"
    for target in ("crm", *_RUNNERS):
        assert len(got(sending, target)) == len(set(got(sending, target))) == 12
    assert audit(sending.runtime).differences == ()
