"""An audit during deliveries neither reports a concurrent commit as a difference nor counts a part of it."""

from __future__ import annotations

from pipeline.delivering import RunningClock, Sending

from eventbridge import fault_points
from eventbridge.repair.audit import Audit, audit

#: Audits of a story, each with one batch more: committed batches are audited, so later audits read more often.
_MOST = 20


def test_a_batch_committed_meanwhile_is_no_difference(sending: Sending, clock: RunningClock) -> None:
    """Wherever a batch and retries of earlier ones are committed between two reads of the audit."""
    sending.rules(crm="/healthy/crm", late="/flaky/late")
    sending.publish(4)
    sending.deliver()
    auditing = sending.runtime
    sending.site.reopen()
    found: list[Audit] = []
    left = 0  # looks until the batch is delivered; below 0, the audit was over before

    while left == 0 and len(found) < _MOST:

        def hook(point: str) -> None:
            nonlocal left
            left -= point in ("ledger.select", "store.list")
            if not left:
                fault_points.install(None)
                sending.publish(2)
                clock.advance(2 * 3600)
                sending.deliver()

        left = 1 + 7 * len(found)
        fault_points.install(hook)
        try:
            found.append(audit(auditing))
        finally:
            fault_points.install(None)
    assert [each.differences for each in found] == [()] * len(found)
    for each in found:
        for target, counts in each.deliveries.items():
            assert counts["matched"] == counts["delivered"] + counts["dead_lettered"] + counts["pending"], target
