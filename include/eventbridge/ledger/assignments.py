"""Assignments in the ledger: which runner delivers for which target, and where it left the target's rule."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection

from eventbridge.ledger.batches import ranges_of, unfinished_of
from eventbridge.ledger.database import Database
from eventbridge.ledger.offsets import offsets_of
from eventbridge.ledger.statements import runners as statements
from eventbridge.ledger.statements.rules import HOLD_RULES
from eventbridge.model.partition import Partition
from eventbridge.model.runner import Assignment, Deliverers, LeftAt, OpenBatch


class Assignments(Database):
    """The part of the ledger about which runner delivers for which target."""

    def assignments(self) -> dict[tuple[str, str], Assignment]:
        """Return, for each (rule, target), the runner that last took a batch, and where it left the rule to another."""
        with self._reading() as connection:
            return _assignments(connection)

    def deliverers(self) -> Deliverers:
        """Return the assignments with their runners' offsets and open batches, all read at one moment."""
        with self._reading() as connection:
            assigned = _assignments(connection)
            found = {}
            for runner in sorted({each.runner for each in assigned.values()}):
                batch = unfinished_of(connection, runner)
                if batch is not None:
                    found[runner] = OpenBatch(batch, tuple(ranges_of(connection, batch.batch_id)))
            return Deliverers(assigned, tuple(offsets_of(connection)), found)

    def leave_targets(self, runner: str, targets: Iterable[tuple[str, str]], in_force: str) -> bool:
        """Record that a runner delivers for these (rule, target) up to its offsets and no further; only for its own.

        Return whether it was recorded. It is recorded only while `in_force` is the rule set in force and no batch of
        the runner is open: an open batch may have these rules, and it moves the runner's offsets.
        """
        pairs = sorted(set(targets))
        if not pairs:
            return True
        with self._writing() as connection:
            if not _held(connection, in_force) or unfinished_of(connection, runner) is not None:
                return False
            left = [
                LeftAt(row.partition, row.offset, row.bus_identity or row.message_id)
                for row in offsets_of(connection, runner)
            ]
            rows = [{"of_rule": r, "of_target": t, "of_runner": runner, "left": left} for r, t in pairs]
            connection.execute(statements.LEAVE_TARGET, rows)
            return True

    def assign_targets(self, runner: str, targets: Iterable[tuple[str, str]], in_force: str) -> bool:
        """Record that a runner delivers for these (rule, target) from now on.

        Return whether it was recorded. It is recorded only while `in_force` is the rule set in force: a newer rule set
        may assign them to another runner.
        """
        now = self.now()
        pairs = sorted(set(targets))
        if not pairs:
            return True
        rows = [{"rule": r, "target": t, "runner": runner, "worker": None, "assigned_at": now} for r, t in pairs]
        changes = [{"of_rule": r, "of_target": t, "to": runner, "now": now} for r, t in pairs]
        with self._writing() as connection:
            if not _held(connection, in_force):
                return False
            connection.execute(statements.ASSIGN_TARGET, rows)
            connection.execute(statements.REASSIGN_TARGET, changes)
            return True


def _held(connection: Connection, in_force: str) -> bool:
    """Return whether a rule set is in force; keep it so, and let no batch be planned, until the transaction ends."""
    return connection.execute(HOLD_RULES, {"of_rule_set": in_force}).rowcount == 1


def _assignments(connection: Connection) -> dict[tuple[str, str], Assignment]:
    return {
        (row.rule, row.target): Assignment(
            row.runner, tuple(LeftAt(Partition(*partition), offset, name) for partition, offset, name in row.left_at)
        )
        for row in connection.execute(statements.ASSIGNMENTS)
    }
