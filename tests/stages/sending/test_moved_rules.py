"""A rule that moves to another runner misses no event."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from stages.delivering import http, rules

from eventbridge.errors import RuleMovedError
from eventbridge.stages.deliver import deliver_batch
from eventbridge.stages.listen import listen
from eventbridge.stages.route_in_process import InProcessRouter
from eventbridge.testing.receiver import Receiver

Order = Callable[..., bytes]


def _text(receiver: Receiver, runner: str, start_at: str = "latest") -> str:
    text = rules(crm=http(receiver.url("/healthy/crm"))).replace("start_at: earliest", f"start_at: {start_at}")
    return text.replace("    bus: orders\n", f"    bus: orders\n    runner: {runner}\n", 1)


def _deliver(work: Any, runner: str) -> bool:
    return deliver_batch(work, runner, InProcessRouter(work.store), threading.Event()) is not None


def test_a_rule_moved_to_a_new_runner_goes_on_where_the_old_one_stands(
    site: Any, order: Order, receiver: Receiver
) -> None:
    """Though its bus starts at latest, the new runner takes what the old one had not, and nothing twice."""
    site.write_rules(_text(receiver, "old", "earliest"))
    site.publish(*(order(number) for number in range(4)))
    work = site.work
    assert _deliver(work, "old")
    site.publish(*(order(number) for number in range(4, 10)))

    site.write_rules(_text(receiver, "new"))
    assert _deliver(work, "new")

    requests = [request["webhook_id"] for request in receiver.requests()]
    assert len(requests) == len(set(requests)) == 10


def test_a_rule_that_would_miss_events_at_its_new_runner_is_refused(
    site: Any, order: Order, receiver: Receiver
) -> None:
    """A runner that is further than the rule's old one takes nothing until the old one has caught up."""
    both = _text(receiver, "old", "earliest") + (
        "  other:\n    bus: orders\n    runner: ahead\n    pattern: {type: [order.placed]}\n    targets:\n"
        f"      log: {http(receiver.url('/healthy/log'))}\n"
    )
    site.write_rules(both)
    site.publish(*(order(number) for number in range(4)))
    work = site.work
    assert _deliver(work, "old")
    site.publish(*(order(number) for number in range(4, 10)))
    assert _deliver(work, "ahead")

    site.write_rules(both.replace("runner: old", "runner: ahead"))
    site.publish(order(10))
    with pytest.raises(RuleMovedError, match="6 events further"):
        listen(work, "ahead")

    site.write_rules(both)
    while _deliver(work, "old"):
        pass
    while _deliver(work, "ahead"):
        pass
    site.write_rules(both.replace("runner: old", "runner: ahead"))
    site.publish(order(11))
    assert _deliver(work, "ahead")
    crm = [request["webhook_id"] for request in receiver.requests() if request["path"] == "/healthy/crm"]
    assert len(crm) == len(set(crm)) == 12
