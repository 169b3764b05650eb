"""Deferred matches in the ledger: shares of batches that are not routed yet, and rules that are on hold."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row

from eventbridge.ledger.columns import microseconds, to_spans
from eventbridge.ledger.database import Database
from eventbridge.ledger.operations import queue_events
from eventbridge.ledger.statements import batches as batch_statements
from eventbridge.ledger.statements import deferred_matches as statements
from eventbridge.model.batch import Batch
from eventbridge.model.partition import Span
from eventbridge.model.pending import DeferredMatch
from eventbridge.model.rule_state import RuleOnHold
from eventbridge.policy.operational_event import of_rule_on_hold_in_version


def insert_deferred_matches(connection: Connection, deferred_matches: Sequence[DeferredMatch]) -> None:
    """Add the deferred matches of a batch that is being published."""
    if deferred_matches:
        connection.execute(statements.INSERT_DEFERRED_MATCHES, [_deferred_match_row(each) for each in deferred_matches])


class DeferredMatches(Database):
    """The part of the ledger about matches that are routed later."""

    def deferred_matches(self) -> list[DeferredMatch]:
        """Return all deferred matches, including closed ones, in the order they were made."""
        with self._reading() as connection:
            return [_to_deferred_match(row) for row in connection.execute(statements.DEFERRED_MATCHES)]

    def deferred_matches_of(self, batch_id: str) -> list[DeferredMatch]:
        """Return the deferred matches that a batch made, in any state."""
        with self._reading() as connection:
            return [
                _to_deferred_match(row)
                for row in connection.execute(statements.DEFERRED_MATCHES_OF, {"of_batch": batch_id})
            ]

    def deferred_matches_taken_by(self, batch_id: str) -> list[DeferredMatch]:
        """Return the deferred matches that a batch took, including those it has closed."""
        with self._reading() as connection:
            rows = connection.execute(statements.DEFERRED_MATCHES_TAKEN_BY, {"of_batch": batch_id})
            return [_to_deferred_match(row) for row in rows]

    def waiting_deferred_matches(self, runner: str | None = None) -> list[DeferredMatch]:
        """Return the waiting deferred matches (scheduled, on hold or taken by an uncommitted batch), oldest first."""
        with self._reading() as connection:
            found = [_to_deferred_match(row) for row in connection.execute(statements.WAITING_DEFERRED_MATCHES)]
        return [each for each in found if runner in (None, each.runner)]

    def waiting_spans(self, rule: str, *, but: str) -> tuple[list[Span], list[DeferredMatch]]:
        """Return the positions of events that wait to be routed for a rule, without those that the batch `but` took.

        The second value holds deferred matches without positions: their rule had no ordered target when they were made.
        """
        asked = {"of_rule": rule, "of_batch": but}
        with self._reading() as connection:
            spans = [span for row in connection.execute(statements.WAITING_SPANS, asked) for span in to_spans(row[0])]
            return spans, [_to_deferred_match(row) for row in connection.execute(statements.WITHOUT_SPANS, asked)]

    def deferred_match_due(self, now: datetime) -> bool:
        """Return whether a batch of deferred matches can be planned at `now`; the cost grows with rules only."""
        with self._reading() as connection:
            return connection.execute(statements.ONE_DUE, {"now": now}).first() is not None

    def any_deferred_match(self) -> bool:
        """Return whether any deferred match is open, due or not."""
        with self._reading() as connection:
            return connection.execute(statements.ONE_DEFERRED_MATCH).first() is not None

    def deferred_match_taken(self) -> bool:
        """Return whether an uncommitted batch has taken deferred matches."""
        with self._reading() as connection:
            return connection.execute(statements.ONE_DEFERRED_MATCH_TAKEN).first() is not None

    def plan_deferred_matches(self, batch: Batch, deferred_match_ids: Sequence[int]) -> bool:
        """Add a batch with the deferred matches it takes; change nothing and return False if one is not free."""
        ids = sorted(set(deferred_match_ids))
        with self._writing() as connection:
            if len(connection.execute(statements.FREE_DEFERRED_MATCHES, {"ids": ids}).all()) != len(ids):
                return False
            connection.execute(batch_statements.INSERT_BATCH, vars(batch))
            connection.execute(statements.TAKE_DEFERRED_MATCHES, {"of_batch": batch.batch_id, "ids": ids})
            return True

    def hold_deferred_matches(self, rule: str) -> int:
        """Put the untaken deferred matches of a rule on hold; return how many."""
        with self._writing() as connection:
            return connection.execute(statements.HOLD_DEFERRED_MATCHES, {"of_rule": rule, "now": self.now()}).rowcount

    def defer_deferred_matches(self, rule: str, until: datetime) -> int:
        """Defer the due deferred matches of a rule that have not expired to `until`; return how many."""
        change = {"of_rule": rule, "now": self.now(), "until": until}
        with self._writing() as connection:
            return connection.execute(statements.POSTPONE_DEFERRED_MATCHES, change).rowcount

    def release_deferred_matches(self, rule: str) -> int:
        """Make the deferred matches of a rule that are on hold due now; return how many.

        The time that they were on hold is added to their expiry.
        """
        now = self.now()
        change = {"of_rule": rule, "now": now, "microseconds": microseconds(now)}
        with self._writing() as connection:
            return connection.execute(statements.RELEASE_DEFERRED_MATCHES, change).rowcount

    def hold_rule(self, rule: str, version: str, reason: str) -> None:
        """Put this version of a rule on hold: it is not routed until a person acts or its file changes."""
        self._note_rule(rule, "on_hold", version, reason)

    def release_rule(self, rule: str) -> None:
        """Release a rule, so that it is routed again."""
        self._note_rule(rule, "enabled", "", "")

    def rules_on_hold(self) -> dict[str, RuleOnHold]:
        """Return the rules that are on hold, by name."""
        with self._reading() as connection:
            return {
                row.rule: RuleOnHold(row.rule, row.version, row.reason, row.since)
                for row in connection.execute(statements.RULES_ON_HOLD)
            }

    def _note_rule(self, rule: str, state: str, version: str, reason: str) -> None:
        now = self.now()
        noted = {"rule": rule, "state": state, "version": version, "reason": reason, "since": now}
        change = {"of_rule": rule, "to": state, "of_version": version, "because": reason, "now": now}
        with self._writing() as connection:
            held = {(row.rule, row.version) for row in connection.execute(statements.RULES_ON_HOLD)}
            if state == "on_hold" and (rule, version) not in held:
                queue_events(connection, [of_rule_on_hold_in_version(rule, version, reason, now)])
            if connection.execute(statements.NOTE_RULE, noted).rowcount == 0:
                connection.execute(statements.CHANGE_RULE, change)


def _deferred_match_row(row: DeferredMatch) -> dict[str, Any]:
    values = dict(vars(row))
    del values["deferred_match_id"]
    return values | {"size": 0}  # unknown until it is read


def _to_deferred_match(row: Row[Any]) -> DeferredMatch:
    values = dict(row._mapping)
    del values["size"]
    values["files"] = tuple((file, rows) for file, rows in values["files"])
    values["order_spans"] = to_spans(values["order_spans"])
    return DeferredMatch(**values)
