"""Evaluates a budgeted rule's `where` and SQL transforms for its events with Spark SQL, within the rule's budget.

The routers call this module on the driver; then the share goes to a worker with the results. If Spark rejects an
expression, its rule is put on hold. An expression that fails for an event fails for that event alone. An expression
that does not end is interrupted, and its rule is put on hold without another try, because Java continues with the
current event and occupies one of Spark's task slots until that event is done.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import structs

from eventbridge.errors import SparkError
from eventbridge.model import rowset
from eventbridge.routing.job import RouteJob, RuleShare, Task
from eventbridge.routing.sql_results import EventRow, SqlResult, Value, write_sql_results
from eventbridge.rules import Rule
from eventbridge.spark.failure import first_error
from eventbridge.spark.frame import path_beside
from eventbridge.spark.sql_frame import CONFS, HALF, collect, events_frame, is_json, query_frame, text_columns
from eventbridge.store.protocol import Store
from eventbridge.store.rule_sets import frozen_rules
from eventbridge.transform.sql.lexer import SqlError
from eventbridge.transform.sql.parser import parse_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

#: The maximum number of events per job, and the maximum factor by which a job may have more events than the previous
#: one. The first job has one event.
_MAX_EVENTS, _GROWTH = 2_000, 8
#: A job is sized to take at most this part of the budget, and none starts in the second half of the budget, so that an
#: interrupted job has had several times its expected duration.
_BUDGET_PART = 1 / 8
#: The time limits, in seconds, for a job without expressions, and for ending an interrupted job.
_RESULT_TIMEOUT_SECONDS = 60.0
_GRACE_SECONDS = 15.0


class _BudgetExceeded(Exception):
    """The budget is exhausted, and the job was interrupted."""


class _JobFailed(Exception):
    """The job failed; the message is Spark's."""


def rules_in_sql(store: Store, job: RouteJob, tasks: Sequence[Task]) -> dict[str, Rule]:
    """Return the rules, by slice id, of the tasks that first need Spark SQL."""
    shares = [task for task in tasks if isinstance(task, RuleShare) and not task.give_up]
    if not shares:
        return {}
    rules = frozen_rules(store, job.rule_set).rules
    return {share.slice_id: rules[share.rule] for share in shares if rules[share.rule].in_sql}


def with_sql_results(
    spark: SparkSession | ConnectSession, store: Store, job: RouteJob, rule: Rule, share: RuleShare
) -> RuleShare:
    """Return the share with Spark's results within its budget, or with the reason to put its rule on hold.

    The budget is wall time, twice the share's CPU-seconds plus one second, because the CPU time of Spark's JVM cannot
    be attributed. The results are in the store; the caller deletes them (`delete_sql_results`) once the share is
    routed. Raises SparkError if Spark fails or does not respond even without expressions.
    """
    for name, value in CONFS.items():
        spark.conf.set(name, value)
    asking = _ShareQueries(spark, job, rule, share)
    asking.ask()
    part = re.sub(r"[^\w.-]", "_", share.slice_id, flags=re.ASCII) + f"-{uuid.uuid4().hex}"
    path = path_beside(job, f"sql/{part}.parquet")
    write_sql_results(store, path, asking.results)
    return structs.replace(share, results=path, hold=asking.hold)


def delete_sql_results(store: Store, share: RuleShare) -> None:
    """Delete the results of `with_sql_results` for a share that is routed or will be evaluated again.

    If the process dies before this, maintenance of the store removes the orphaned file. Raises StoreError if the store
    fails.
    """
    if share.results is not None:
        store.delete(share.results)


def _rewrite_for_spark(rule: Rule) -> tuple[str | None, dict[str, str]]:
    """Return `where` and each SQL target's value, checked and rewritten for Spark.

    They are checked again because an older version or another program may have frozen the rule set. Raises SqlError if
    one is not allowed.
    """
    where = None if rule.where is None else parse_sql(rule.where).to_sql()
    targets = [target for target in rule.targets.values() if target.transform.form == "SQL"]
    return where, {target.name: parse_sql(str(target.transform.value)).to_sql() for target in targets}


class _ShareQueries:
    """Evaluates one share, and holds the results so far."""

    def __init__(self, spark: SparkSession | ConnectSession, job: RouteJob, rule: Rule, share: RuleShare) -> None:
        self.results: dict[EventRow, SqlResult] = {}
        self.hold = ""
        self._spark = spark
        self._job = job
        self._where: str | None = None
        self._values: dict[str, str] = {}
        try:
            self._where, self._values = _rewrite_for_spark(rule)
        except SqlError as error:
            self.hold = f"Its SQL is not sent to Spark: {error}"
        self._event_rows = [(file, row) for file, rows in share.files for row in rowset.decode(rows)]
        self._seconds = 2 * share.cpu_seconds + 1
        self._names = {target: f"__value{number}" for number, target in enumerate(self._values)}
        self._columns: dict[str, str] = {}
        self._until = 0.0

    def ask(self) -> None:
        """Evaluate one group of events after another until all are done, the time is up, or the rule must be put on
        hold."""
        if self.hold:
            return
        self._require_spark(self._event_rows[:1])
        if not self._passes_analysis():
            return
        self._until = time.monotonic() + self._seconds
        left, size = self._event_rows, 1
        while left:
            group, left = left[:size], left[size:]
            began = time.monotonic()
            try:
                self._ask(group)
            except _BudgetExceeded as late:
                if late.args and self._is_quick(group, time.monotonic() - began):
                    self.hold = late.args[0]
                return
            took = max(time.monotonic() - began, 0.001)
            size = max(1, min(size * _GROWTH, _MAX_EVENTS, int(len(group) * self._seconds * _BUDGET_PART / took)))

    def _is_quick(self, group: Sequence[EventRow], had_seconds: float) -> bool:
        """Return whether Spark needs at most half as long without expressions. This shows that the expression was
        slow."""
        self._require_spark(group)  # restarts an interrupted worker, which takes seconds
        began = time.monotonic()
        self._require_spark(group)
        return time.monotonic() - began <= had_seconds / 2

    def _passes_analysis(self) -> bool:
        from pyspark.errors import AnalysisException

        events = events_frame(self._spark, self._job, self._event_rows[:1])
        try:
            # a session without a server analyses here, one with a server when types are requested
            asked = query_frame(events, self._where, self._name_columns(self._values))
            self._columns = dict(zip(self._values, text_columns(asked), strict=True))
        except AnalysisException as error:  # includes syntax errors
            self.hold = f"Spark rejects its SQL: {first_error(str(error))}"
            return False
        return True

    def _ask(self, group: Sequence[EventRow]) -> None:
        try:
            rows = self._run(group, self._where, self._values)
        except _JobFailed as failure:
            if len(group) == 1:
                self._ask_apart(group[0], str(failure))
                return
            middle = len(group) // 2
            self._ask(group[:middle])
            self._ask(group[middle:])
            return
        for number, kept, *texts in rows:
            values = {name: self._value(name, text) for name, text in zip(self._values, texts, strict=True)}
            self.results[group[number]] = SqlResult(kept, values=values if kept else {})

    def _ask_apart(self, event_row: EventRow, failure: str) -> None:
        """Find the expressions that fail for an event by evaluating each alone.

        Raises SparkError if Spark fails without any.
        """
        self._require_spark([event_row])
        if self._where is not None:
            try:
                kept = not self._values or self._run([event_row], self._where, {})[0][1]
            except _JobFailed as error:
                failure, kept = str(error), None
            if kept is None or not self._values:
                self.results[event_row] = SqlResult(kept=True, failure=failure)
                return
            if not kept:
                self.results[event_row] = SqlResult(kept=False)
                return
        values = {}
        for name, value in self._values.items():
            try:
                values[name] = self._value(name, self._run([event_row], None, {name: value})[0][2])
            except _JobFailed as error:
                values[name] = Value(None, failure=str(error))
        self.results[event_row] = SqlResult(kept=True, values=values)

    def _name_columns(self, values: dict[str, str]) -> dict[str, str]:
        return {self._names[target]: value for target, value in values.items()}

    def _value(self, target: str, text: str | None) -> Value:
        as_json = is_json(self._columns[target])
        if text is not None and not as_json and (half := HALF.search(text)):
            message = f"the text holds half of a surrogate pair (U+{ord(half[0]):04X}), which is not valid text"
            return Value(None, failure=message)
        return Value(text, as_json)

    def _run(self, group: Sequence[EventRow], where: str | None, values: dict[str, str]) -> list[list[Any]]:
        seconds = self._until - time.monotonic()
        if seconds <= self._seconds / 2:
            raise _BudgetExceeded
        return self._rows(group, where, values, seconds)

    def _rows(
        self, group: Sequence[EventRow], where: str | None, values: dict[str, str], seconds: float
    ) -> list[list[Any]]:
        """Return Spark's rows. Raises _JobFailed, or _BudgetExceeded with a message after an interruption."""
        asked = query_frame(events_frame(self._spark, self._job, group), where, self._name_columns(values))
        found = _interrupted_after(self._spark, seconds, lambda: collect(asked, [self._columns[n] for n in values]))
        if found is None:
            raise _BudgetExceeded(f"its SQL did not end within {seconds:.0f} s (events in the job: {len(group)})")
        if isinstance(found, str):
            raise _JobFailed(found)
        if sorted(row[0] for row in found) != list(range(len(group))):
            raise _JobFailed("Spark did not return one row for each event")
        return found

    def _require_spark(self, event_rows: Sequence[EventRow]) -> None:
        """Raise SparkError unless Spark returns these events without expressions."""
        try:
            self._rows(event_rows, None, {}, _RESULT_TIMEOUT_SECONDS)
        except (_BudgetExceeded, _JobFailed) as error:
            raise SparkError(f"Spark fails even without an expression: {error}") from error


def _interrupted_after(
    spark: SparkSession | ConnectSession, seconds: float, job: Callable[[], list[list[Any]]]
) -> list[list[Any]] | str | None:
    """Return a job's result, its error message, or None if it was interrupted after the time limit."""
    tag = f"eventbridge-{uuid.uuid4().hex}"
    outcome: list[list[list[Any]] | Exception] = []

    def work() -> None:
        spark.addTag(tag)  # tags the jobs of this thread
        try:
            outcome.append(job())
        except Exception as error:  # any error of Spark, gRPC or the JVM gateway
            outcome.append(error)

    thread = threading.Thread(target=work, name=tag, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        spark.interruptTag(tag)
        # The job ends immediately, though its last event may occupy a Spark task for longer.
        thread.join(_GRACE_SECONDS)
        return None
    return first_error(str(outcome[0])) if isinstance(outcome[0], Exception) else outcome[0]
