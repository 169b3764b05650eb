"""Statuses of targets in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from eventbridge.ledger.database import Database
from eventbridge.ledger.operations import queue_events
from eventbridge.ledger.statements import targets as statements
from eventbridge.model.rule_state import TargetState, TargetStatus
from eventbridge.policy.breaker import Count, Tally, after, disabled, first_second, recovered
from eventbridge.policy.operational_event import of_target
from eventbridge.policy.rate_limit import Bucket, Lease, lease


def note_attempts(connection: Connection, tallies: Sequence[Tally], now: datetime) -> None:
    """Count attempts by target and second, and change the statuses of targets as the breaker decides.

    A target without a failure gets no status.
    """
    if not tallies:
        return
    tallies = sorted(tallies, key=lambda each: (each.rule, each.target))  # so that two pushes cannot deadlock
    _count(connection, tallies)
    first = first_second(now)
    before = [{"of_rule": tally.rule, "of_target": tally.target, "before_second": first} for tally in tallies]
    connection.execute(statements.FORGET_ATTEMPTS, before)
    known = {(row.rule, row.target) for row in connection.execute(statements.TARGET_STATUSES)}
    for tally in tallies:
        if not tally.is_word_against and (tally.rule, tally.target) not in known:
            continue
        of = {"of_rule": tally.rule, "of_target": tally.target}
        old = _standing(connection, tally.rule, tally.target, now)
        sums = connection.execute(statements.WINDOW, of | {"from_second": first}).one()
        new = after(old, tally, Count(*(int(each or 0) for each in sums)), now)
        _change(connection, old, new)
        if new.state == "ok" and old.state != "ok":
            # attempts before a target recovered do not open its breaker again
            connection.execute(statements.FORGET_ATTEMPTS, of | {"before_second": int(now.timestamp()) + 1})


def _count(connection: Connection, tallies: Sequence[Tally]) -> None:
    """Add the counts of tallies, always in two statements: a chunk may have thousands of targets."""
    rows, changes = [], []
    for tally in tallies:
        for second, count in sorted(tally.counts.items()):
            rows.append({"rule": tally.rule, "target": tally.target, "second": second} | Count()._asdict())
            change = {"of_rule": tally.rule, "of_target": tally.target, "of_second": second}
            changes.append(change | {f"more_{name}": number for name, number in count._asdict().items()})
    if rows:
        connection.execute(statements.NOTE_ATTEMPTS, rows)
        connection.execute(statements.ADD_ATTEMPTS, changes)


def _standing(connection: Connection, rule: str, target: str, now: datetime) -> TargetStatus:
    of = {"of_rule": rule, "of_target": target}
    found = connection.execute(statements.TARGET_STATUS, of).first()
    if found is None:
        connection.execute(statements.NOTE_TARGET_STATUS, vars(TargetStatus(rule, target, "ok", "", now)))
        found = connection.execute(statements.TARGET_STATUS, of).one()
    return TargetStatus(**found._mapping)


def _change(connection: Connection, old: TargetStatus, new: TargetStatus) -> None:
    if new == old:
        return
    change = {
        "of_rule": new.rule,
        "of_target": new.target,
        "to": new.state,
        "because": new.reason,
        "from_then": new.since,
        "till": new.until,
        "good_probes": new.good,
        "is_slow": new.slow,
        "failing_from": new.failing_since,
        "paused_till": new.paused_until,
    }
    connection.execute(statements.CHANGE_TARGET_STATUS, change)
    event = of_target(old, new)
    queue_events(connection, [event] if event is not None else [])


class Targets(Database):
    """The part of the ledger about the statuses of targets."""

    def target_statuses(self) -> dict[tuple[str, str], TargetStatus]:
        """Return the statuses of targets by (rule, target); a target that was always ok is absent."""
        with self._reading() as connection:
            return {
                (row.rule, row.target): TargetStatus(**row._mapping)
                for row in connection.execute(statements.TARGET_STATUSES)
            }

    def set_target_status(self, rule: str, target: str, state: TargetState, reason: str) -> None:
        """Set the state of a target and its reason; `since` changes only with the state. Ends its pause, holds none."""
        now = self.now()
        with self._writing() as connection:
            old = _standing(connection, rule, target, now)
            if state == "ok" and old.state != "ok":
                new = recovered(old, reason, now)
            elif state == "disabled":
                new = disabled(old, reason, now)
            else:
                since = old.since if state == old.state else now
                new = replace(old, state=state, reason=reason, since=since, until=None, good=0, slow=False)
            _change(connection, old, replace(new, paused_until=None))

    def note_attempts(self, tallies: Sequence[Tally]) -> None:
        """Add the tallies of pushes and change the statuses of their targets as the breaker decides."""
        with self._writing() as connection:
            note_attempts(connection, tallies, self.now())

    def claim_probe(self, rule: str, target: str, until: datetime) -> bool:
        """Claim the probe of a target whose breaker admits probes, until a time; return False if another has it."""
        change = {"of_rule": rule, "of_target": target, "now": self.now(), "till": until}
        with self._writing() as connection:
            return connection.execute(statements.CLAIM_PROBE, change).rowcount == 1

    def lease_tokens(self, rule: str, target: str, rate: float, wanted: int) -> Lease:
        """Lease up to `wanted` tokens of a target whose bucket fills at `rate` a second, for use within a second."""
        now = self.now()
        of = {"of_rule": rule, "of_target": target}
        with self._writing() as connection:
            found = connection.execute(statements.TOKENS, of).first()
            if found is None:
                full = lease(None, rate, 0, now).left
                row = {"rule": rule, "target": target, "count": full.count, "at": full.at}
                connection.execute(statements.NOTE_TOKENS, row)
                found = connection.execute(statements.TOKENS, of).one()
            given = lease(Bucket(*found), rate, wanted, now)
            connection.execute(statements.CHANGE_TOKENS, of | {"left": given.left.count, "now": given.left.at})
            return given
