"""Stores in the ledger which runner delivers for each target, and the offsets at which it left the rule."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from eventbridge.ledger.batches import ranges_of, unfinished_of
from eventbridge.ledger.database import Aggregate
from eventbridge.ledger.definitions import JsonText, UtcTime, insert_or_skip, metadata
from eventbridge.ledger.offsets import offsets_of
from eventbridge.ledger.rules import HOLD_RULES
from eventbridge.model.partition import Partition
from eventbridge.model.runner import Assignment, Deliverers, LeftAt, OpenBatch

#: The workers (queues of an Airflow executor) on which the tasks of runners execute, and their load.
event_push_worker = sa.Table(
    "event_push_worker",
    metadata,
    sa.Column("worker", sa.Text, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("load", sa.Float, nullable=False),
    sa.Column("seen_at", UtcTime, nullable=False),
)

#: The runner that serves a rule's target, and the worker to which the runner is assigned.
event_target_runner = sa.Table(
    "event_target_runner",
    metadata,
    sa.Column("rule", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("runner", sa.Text, nullable=False),
    sa.Column("worker", sa.Text, sa.ForeignKey("event_push_worker.worker")),
    sa.Column("assigned_at", UtcTime, nullable=False),
    sa.Column("left_at", JsonText, nullable=False, server_default="[]"),
    sa.PrimaryKeyConstraint("rule", "target"),
)

#: The runner that delivers for each target, and where it left the target's rule.
ASSIGNMENTS = sa.select(
    event_target_runner.c.rule,
    event_target_runner.c.target,
    event_target_runner.c.runner,
    event_target_runner.c.left_at,
)

_HAS_LEFT = sa.type_coerce(event_target_runner.c.left_at, sa.Text) != "[]"

#: Assigns to a runner a target of another runner, or one that the runner itself had left.
REASSIGN_TARGET = (
    sa.update(event_target_runner)
    .where(
        event_target_runner.c.rule == sa.bindparam("of_rule"),
        event_target_runner.c.target == sa.bindparam("of_target"),
        sa.or_(event_target_runner.c.runner != sa.bindparam("to"), _HAS_LEFT),
    )
    .values(runner=sa.bindparam("to"), assigned_at=sa.bindparam("now", type_=UtcTime), left_at=())
)

#: Records where a runner leaves a target's rule, unless that is already recorded.
LEAVE_TARGET = (
    sa.update(event_target_runner)
    .where(
        event_target_runner.c.rule == sa.bindparam("of_rule"),
        event_target_runner.c.target == sa.bindparam("of_target"),
        event_target_runner.c.runner == sa.bindparam("of_runner"),
        ~_HAS_LEFT,
    )
    .values(left_at=sa.bindparam("left"))
)


class Assignments(Aggregate):
    """The assignments of runners to targets."""

    def all(self) -> dict[tuple[str, str], Assignment]:
        """Return the assignment of each (rule, target): its runner and, if the runner has left it, the offsets at that
        time."""
        with self._reading() as connection:
            return _assignments(connection)

    def deliverers(self) -> Deliverers:
        """Return the assignments with their runners' offsets and open batches, all from one snapshot."""
        with self._reading() as connection:
            assigned = _assignments(connection)
            found = {}
            for runner in sorted({each.runner for each in assigned.values()}):
                batch = unfinished_of(connection, runner)
                if batch is not None:
                    found[runner] = OpenBatch(batch, tuple(ranges_of(connection, batch.batch_id)))
            return Deliverers(assigned, tuple(offsets_of(connection)), found)

    def leave(self, runner: str, targets: Iterable[tuple[str, str]], in_force: str) -> bool:
        """Record that a runner delivers for these (rule, target) pairs only up to its current offsets.

        Pairs of other runners stay as they are. Returns False, and changes nothing, if `in_force` is no longer the rule
        set in force, or if the runner has an uncommitted batch, which may contain these rules and will move the
        runner's offsets.
        """
        pairs = sorted(set(targets))
        if not pairs:
            return True
        with self._writing() as connection:
            if not _is_in_force(connection, in_force) or unfinished_of(connection, runner) is not None:
                return False
            left = [
                LeftAt(row.partition, row.offset, row.bus_identity or row.message_id)
                for row in offsets_of(connection, runner)
            ]
            rows = [{"of_rule": r, "of_target": t, "of_runner": runner, "left": left} for r, t in pairs]
            connection.execute(LEAVE_TARGET, rows)
            return True

    def assign(self, runner: str, targets: Iterable[tuple[str, str]], in_force: str) -> bool:
        """Record that a runner delivers for these (rule, target) pairs from now on.

        Returns False, and changes nothing, if `in_force` is no longer the rule set in force, because a newer rule set
        may assign them to another runner.
        """
        now = self._now()
        pairs = sorted(set(targets))
        if not pairs:
            return True
        rows = [{"rule": r, "target": t, "runner": runner, "worker": None, "assigned_at": now} for r, t in pairs]
        changes = [{"of_rule": r, "of_target": t, "to": runner, "now": now} for r, t in pairs]
        with self._writing() as connection:
            if not _is_in_force(connection, in_force):
                return False
            connection.execute(insert_or_skip(event_target_runner), rows)
            connection.execute(REASSIGN_TARGET, changes)
            return True


def _is_in_force(connection: sa.Connection, in_force: str) -> bool:
    """Return whether a rule set is in force, and lock it until the transaction ends, so that no batch is planned."""
    return connection.execute(HOLD_RULES, {"of_rule_set": in_force}).rowcount == 1


def _assignments(connection: sa.Connection) -> dict[tuple[str, str], Assignment]:
    return {
        (row.rule, row.target): Assignment(
            row.runner, tuple(LeftAt(Partition(*partition), offset, name) for partition, offset, name in row.left_at)
        )
        for row in connection.execute(ASSIGNMENTS)
    }
