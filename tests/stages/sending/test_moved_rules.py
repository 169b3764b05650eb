"""A rule that moves to another runner misses no event."""

from __future__ import annotations

import pytest
from stages.delivering import Sending, http, rules

from eventbridge.errors import RuleMovedError
from eventbridge.stages.ingest.listen import listen

CRM = {"crm": "/healthy/crm"}


def test_a_rule_moved_to_a_new_runner_goes_on_where_the_old_one_stands(sending: Sending) -> None:
    """Though its bus starts at latest, the new runner takes what the old one had not, and nothing twice."""
    sending.write(rules(CRM, runner="old"))
    sending.publish(4)
    assert sending.deliver_batch("old")
    sending.publish(6)

    sending.write(rules(CRM, runner="new", start_at="latest"))
    assert sending.deliver_batch("new")

    requests = [request["webhook_id"] for request in sending.requests()]
    assert len(requests) == len(set(requests)) == 10


def test_a_rule_that_would_miss_events_at_its_new_runner_is_refused(sending: Sending) -> None:
    """A runner that is further than the rule's old one takes nothing until the old one has caught up."""
    other = (
        "  other:\n    bus: orders\n    runner: ahead\n    pattern: {type: [order.placed]}\n    targets:\n"
        f"      log: {http('/healthy/log')}\n"
    )
    apart, together = (rules(CRM, runner=runner) + other for runner in ("old", "ahead"))
    sending.write(apart)
    sending.publish(4)
    assert sending.deliver_batch("old")
    sending.publish(6)
    assert sending.deliver_batch("ahead")

    sending.write(together)
    sending.publish(1)
    with pytest.raises(RuleMovedError, match="6 events further"):
        listen(sending.work, "ahead")

    sending.write(apart)
    for runner in ("old", "ahead"):
        while sending.deliver_batch(runner):
            pass
    sending.write(together)
    sending.publish(1)
    assert sending.deliver_batch("ahead")
    crm = [request["webhook_id"] for request in sending.requests() if request["path"] == "/healthy/crm"]
    assert len(crm) == len(set(crm)) == 12
