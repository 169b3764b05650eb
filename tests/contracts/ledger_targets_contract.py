"""What every ledger must do with the standing of targets: one breaker for all pushes, one prober at a time."""

from __future__ import annotations

import pytest
from contracts.ledger_samples import START, Clock, a_pending, after, claimed_chunk, settle

from eventbridge.ledger import Ledger
from eventbridge.ledger.chunks import ChunkEnd
from eventbridge.policy.breaker import Count, Ended, Tally
from eventbridge.policy.operational_event import version_on_hold_event

SECOND = int(START.timestamp())


def tally(attempts: int, failed: int, *, at: int = 0, **fields: object) -> Tally:
    """Return what a push reports of the target crm of rule late."""
    return Tally("late", "crm", {SECOND + at: Count(attempts, failed)}, **fields)  # type: ignore[arg-type]


class TargetsContract:
    """The part about targets."""

    def test_attempts_of_all_pushes_count_together(self, ledger: Ledger, rival: Ledger) -> None:
        """Five failures here and five there open the breaker for 30 s."""
        ledger.targets.record_attempts([tally(5, 5)])
        assert rival.targets.statuses()["late", "crm"].state == "ok"

        rival.targets.record_attempts([tally(5, 5)])

        status = ledger.targets.statuses()["late", "crm"]
        assert (status.state, status.since, status.until) == ("degraded", after(0), after(30))
        assert status.reason == "10 of 10 attempts failed within 30 s"

    def test_good_attempts_count_too(self, ledger: Ledger, rival: Ledger) -> None:
        """Ten failures beside ten that went well are no 70 %; a target that only ever did well has no status."""
        ledger.targets.record_attempts([tally(10, 0)])
        assert ledger.targets.statuses() == {}

        rival.targets.record_attempts([tally(10, 10)])

        assert ledger.targets.statuses()["late", "crm"].state == "ok"

    def test_attempts_of_long_ago_do_not_count(self, ledger: Ledger, clock: Clock) -> None:
        """Nine failures, and one 31 s later."""
        ledger.targets.record_attempts([tally(9, 9)])
        clock.pass_seconds(31)
        ledger.targets.record_attempts([tally(1, 1, at=31)])

        status = ledger.targets.statuses()["late", "crm"]
        assert status.state == "ok"
        assert status.failing_since == after(0)

    def test_good_probes_close_it_and_what_was_before_is_forgotten(self, ledger: Ledger, clock: Clock) -> None:
        """Right after it healed one more failure does not open it again."""
        ledger.targets.record_attempts([tally(10, 10)])
        clock.pass_seconds(1)
        ledger.targets.record_attempts([tally(2, 0, at=1, probes=(True, True))])
        assert ledger.targets.statuses()["late", "crm"].good == 2
        ledger.targets.record_attempts([tally(3, 0, at=1, probes=(True, True, True))])
        clock.pass_seconds(1)

        ledger.targets.record_attempts([tally(1, 1, at=2)])

        status = ledger.targets.statuses()["late", "crm"]
        assert (status.state, status.since, status.until) == ("ok", after(1), after(31))

    def test_one_of_two_may_probe(self, ledger: Ledger, rival: Ledger, clock: Clock) -> None:
        """None while it is open; then one, until its deadline."""
        assert not ledger.targets.claim_probe("late", "crm", after(20)), "it is well"
        ledger.targets.record_attempts([tally(10, 10)])
        assert not ledger.targets.claim_probe("late", "crm", after(50))
        clock.pass_seconds(30)

        assert ledger.targets.claim_probe("late", "crm", after(50))
        assert not rival.targets.claim_probe("late", "crm", after(50))
        clock.pass_seconds(20)
        assert rival.targets.claim_probe("late", "crm", after(70))

    def test_nothing_of_an_open_target_is_due(self, ledger: Ledger, clock: Clock) -> None:
        """But for what can only be dead-lettered; when probes may go, the smallest rows can be asked for first."""
        settle(ledger)
        ledger.pending.add([a_pending(1), a_pending(2, count=1), a_pending(3, expires_at=after(20))])
        ledger.targets.record_attempts([tally(10, 10)])

        assert ledger.due.targets(after(10)) == []
        assert ledger.due.rows(after(10), "late", "crm", 9) == []
        assert [row.pending_id for row in ledger.due.rows(after(20), "late", "crm", 9)] == [3]
        assert [row.pending_id for row in ledger.due.rows(after(30), "late", "crm", 9)] == [1, 2, 3]
        assert [row.pending_id for row in ledger.due.rows(after(30), "late", "crm", 9, smallest=True)] == [2, 1, 3]

    def test_nothing_of_a_paused_target_is_due(self, ledger: Ledger, rival: Ledger) -> None:
        """But for what can only be dead-lettered; the later of two pauses counts, and a person ends it."""
        settle(ledger)
        ledger.pending.add([a_pending(1), a_pending(2, expires_at=after(20))])
        ledger.targets.record_attempts([tally(1, 1, paused_until=after(40))])
        rival.targets.record_attempts([tally(1, 1, paused_until=after(30), opens=False)])

        status = ledger.targets.statuses()["late", "crm"]
        assert (status.state, status.paused_until) == ("ok", after(40))
        assert ledger.due.targets(after(19)) == []
        assert [row.pending_id for row in ledger.due.rows(after(20), "late", "crm", 9)] == [2]
        assert [row.pending_id for row in ledger.due.rows(after(40), "late", "crm", 9)] == [1, 2]
        ledger.targets.set_status("late", "crm", "ok", "enabled by hand")
        assert [row.pending_id for row in rival.due.rows(after(19), "late", "crm", 9)] == [1, 2]

    def test_the_end_of_a_chunk_records_its_targets(self, ledger: Ledger, rival: Ledger) -> None:
        """In one transaction, and only under the claim: a process that lost it records nothing."""
        chunk = claimed_chunk(ledger)
        reported = [Tally("late", "crm", ended=Ended(settled=1, allowed=10, delivered=1, spent=True))]
        assert not rival.chunks.end("batch-1", 0, chunk.claim + 1, ChunkEnd("timeout", 1, 0, tallies=reported))
        assert rival.targets.statuses() == {}

        assert ledger.chunks.end("batch-1", 0, chunk.claim, ChunkEnd("timeout", 1, 0, tallies=reported))

        status = rival.targets.statuses()["late", "crm"]
        assert (status.state, status.slow, status.until) == ("degraded", True, after(0))
        assert status.reason == "settled 1 of 10 deliveries within the push budget"

    def test_slow_responses_of_all_pushes_count_together(self, ledger: Ledger, rival: Ledger, clock: Clock) -> None:
        """Five of ten within 30 s are too many; what was longer ago is not counted."""

        def reported(attempts: int, slow: int) -> Tally:
            return Tally("late", "crm", {int(clock().timestamp()): Count(attempts, 0, slow)})

        ledger.targets.record_attempts([reported(5, 5)])
        clock.pass_seconds(31)
        ledger.targets.record_attempts([reported(5, 0)])
        rival.targets.record_attempts([reported(4, 4)])
        assert ledger.targets.statuses()["late", "crm"].state == "ok"

        clock.pass_seconds(5)
        rival.targets.record_attempts([reported(1, 1)])

        status = ledger.targets.statuses()["late", "crm"]
        assert (status.state, status.slow, status.until) == ("degraded", True, after(36))
        assert status.reason == "5 of 10 responses within 30 s took a fifth of the timeout or longer"

    def test_two_share_the_tokens_of_a_target(self, ledger: Ledger, rival: Ledger, clock: Clock) -> None:
        """Tokens leased by one process are not leased by another; once idle, it has a second's worth and one."""
        assert ledger.targets.lease_tokens("late", "crm", 10.0, 7).granted == 7
        assert rival.targets.lease_tokens("late", "crm", 10.0, 7).granted == 3
        none = ledger.targets.lease_tokens("late", "crm", 10.0, 7)
        assert (none.granted, none.wait_seconds) == (0, pytest.approx(0.1))
        assert rival.targets.lease_tokens("late", "mail", 10.0, 7).granted == 7, "another target has its own"

        clock.pass_seconds(0.5)
        assert rival.targets.lease_tokens("late", "crm", 10.0, 7).granted == 5
        clock.pass_seconds(60)
        assert ledger.targets.lease_tokens("late", "crm", 10.0, 100).granted == 11

    def test_a_change_of_standing_is_queued_with_it(self, ledger: Ledger, rival: Ledger, clock: Clock) -> None:
        """Degraded, recovered, disabled are reported; changes inside the breaker are not."""
        ledger.targets.record_attempts([tally(10, 10)])
        ledger.targets.record_attempts([tally(1, 1, probes=(False,))])
        clock.pass_seconds(1)
        ledger.targets.record_attempts([tally(5, 0, at=1, probes=(True,) * 5)])
        ledger.targets.set_status("late", "crm", "disabled", "the target responded with 410")

        events = rival.operational_events.waiting(10)

        assert [event.type for event in events] == ["target.degraded", "target.recovered", "target.disabled"]
        assert [event.time for event in events] == [after(0), after(1), after(1)]
        assert {event.subject for event in events} == {"late/crm"}
        assert events[0].data["reason"] == "10 of 10 attempts failed within 30 s"
        assert rival.operational_events.waiting(1) == events[:1]
        ledger.operational_events.drop([event.event_id for event in events[:2]])
        assert rival.operational_events.waiting(10) == events[2:]

    def test_an_event_that_waits_is_queued_once(self, ledger: Ledger, rival: Ledger) -> None:
        """Said by two processes, or twice by one."""
        event = version_on_hold_event("late", "cafe", "it loops", after(0))
        ledger.operational_events.queue([event])
        rival.operational_events.queue([event, event])

        assert ledger.operational_events.waiting(10) == [event]

    def test_a_rule_on_hold_is_reported_once_per_version(self, ledger: Ledger) -> None:
        """Holding it again for the same version is no news."""
        ledger.rules.hold("late", "cafe", "it loops")
        (event,) = ledger.operational_events.waiting(10)
        ledger.operational_events.drop([event.event_id])
        ledger.rules.hold("late", "cafe", "it loops")
        assert ledger.operational_events.waiting(10) == []
        ledger.rules.hold("late", "beef", "it loops still")

        assert [each.data["on_hold_at"] for each in ledger.operational_events.waiting(10)] == ["beef"]
        assert (event.type, event.subject, event.data["reason"]) == ("rule.on_hold", "late", "it loops")

    def test_a_rule_put_on_hold_again_after_a_release_is_reported_again(self, ledger: Ledger, clock: Clock) -> None:
        """Under another id, or receivers would take it for a repetition; its time is that since which it is on hold."""
        reported = []
        for _ in range(2):
            ledger.rules.hold("late", "cafe", "it loops")
            (event,) = ledger.operational_events.waiting(10)
            assert event.time == ledger.rules.list_on_hold()["late"].since
            ledger.operational_events.drop([event.event_id])
            clock.pass_seconds(1)
            ledger.rules.release("late")
            reported.append(event.event_id)

        assert reported[0] != reported[1]
