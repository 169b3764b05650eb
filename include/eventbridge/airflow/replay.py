"""The operator that replays archived events from a user's DAG, and waits until the replay has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from eventbridge.airflow.names import REPLAY_DAG
from eventbridge.airflow.replay_end import LATE, ReplayEnd
from eventbridge.airflow.tasks import stage

if TYPE_CHECKING:
    from eventbridge.replay.account import ReplayAccount
    from eventbridge.runtime.runtime import Runtime


class ReplayOperator(BaseOperator):
    """Delivers archived events again, waits until that has ended, and returns the counts by outcome.

    Events of `bus` that landed from `since` to before `until` (ISO 8601, or ages such as `2h`; by default, now) go to
    `rules`: their names, or `*` for all rules of the bus. `targets`, `pattern` and `sql` limit the events, `as_of` is
    `current` or `original` rules, `new_ids=False` keeps the delivery ids, `skip_delivered` skips what a target has
    received, and `rate` is in deliveries per second.

    Runs of the DAG `eventbridge_replay_events` deliver. If the task is marked or cleared, the replay is cancelled; if
    it takes longer than EVENTBRIDGE_REPLAY_TIMEOUT, it is paused, and the task fails. A retry continues the replay.
    Dead letters do not fail the task unless `fail_on_dead_letters` is set. The arguments up to `sql` are templated.
    """

    template_fields: Sequence[str] = ("bus", "since", "until", "rules", "targets", "pattern", "sql")

    def __init__(  # noqa: PLR0913 - an operator takes each template field by itself
        self,
        *,
        bus: str,
        since: str,
        rules: str | Sequence[str],
        until: str | None = None,
        targets: Sequence[str] = (),
        pattern: Mapping[str, Any] | str | None = None,
        sql: str | None = None,
        as_of: str = "current",
        new_ids: bool = True,
        skip_delivered: bool = False,
        rate: float | None = None,
        fail_on_dead_letters: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.bus = bus
        self.since = since
        self.rules = rules
        self.until = until
        self.targets = targets
        self.pattern = pattern
        self.sql = sql
        self.as_of = as_of
        self.new_ids = new_ids
        self.skip_delivered = skip_delivered
        self.rate = rate
        self.fail_on_dead_letters = fail_on_dead_letters

    def execute(self, context: Context) -> None:
        """Begin or continue the replay, start a run that delivers it, and defer to the triggerer."""
        from eventbridge.errors import UserError
        from eventbridge.replay.plan import begin_or_continue
        from eventbridge.replay.request import WrittenReplayRequest

        ti = context["ti"]
        times = context["dag_run"].clear_number or 0
        rules = [self.rules] if isinstance(self.rules, str) else list(self.rules)
        with stage() as runtime:
            if not rules or not all(rules):
                raise UserError("no rules given. Write their names, or * for all rules of the bus")
            written = WrittenReplayRequest(
                bus=self.bus,
                since=self.since,
                until=self.until,
                rules=() if rules == ["*"] else rules,
                targets=self.targets,
                pattern=self.pattern,
                sql=self.sql,
                as_of=self.as_of,
                new_ids=self.new_ids,
                skip_delivered=self.skip_delivered,
                rate=self.rate,
            )
            request = written.read(runtime.ledger.now(), runtime.rule_set())
            name = f"{ti.dag_id} {ti.run_id} {ti.task_id} {ti.map_index}"
            replay = begin_or_continue(runtime, request, name, times)
            until = runtime.ledger.now() + timedelta(seconds=runtime.settings.replay_timeout)
        start_delivering(replay.replay_id, f"asked_{times}_{ti.try_number}")
        self.log.info("replay %s begins; waiting until it has ended", replay.replay_id)
        self.defer(
            trigger=ReplayEnd(replay.replay_id, replay.run, until.isoformat()),
            method_name="return_counts",
            kwargs={"replay_id": replay.replay_id},
        )

    def return_counts(self, context: Context, event: dict[str, str], replay_id: str) -> dict[str, Any]:
        """Return the counts. Raises AirflowFailException if the replay was cancelled or paused."""
        with stage() as runtime:
            state, account = _state_at_end(runtime, replay_id, event["state"])
        counts = dict(account.outcomes)
        self.log.info(
            "replay %s is %s: %d events read, %d taken, %s", replay_id, state, account.read, account.taken, counts
        )
        if state == "cancelled":
            raise AirflowFailException(f"replay {replay_id} was cancelled. Clear the task to begin a new one")
        if state != "done":
            raise AirflowFailException(
                f"replay {replay_id} did not end within EVENTBRIDGE_REPLAY_TIMEOUT, and is paused. Clear the task to "
                f"continue it, or use `eventbridge replays show {replay_id}`"
            )
        if self.fail_on_dead_letters and counts.get("dead_lettered"):
            raise AirflowFailException(
                f"replay {replay_id}: {counts['dead_lettered']} deliveries are dead letters. `eventbridge dead-letters "
                "list` shows them with their reasons"
            )
        return {"replay_id": replay_id, "read": account.read, "taken": account.taken, "outcomes": counts}


def _state_at_end(runtime: Runtime, replay_id: str, state: str) -> tuple[str, ReplayAccount]:
    """Return the state of a replay, which is paused if it is late, and its counts."""
    from eventbridge.replay.account import account_of

    if state == LATE:
        runtime.ledger.replays.set_state(replay_id, "running", "paused")
    replay = runtime.ledger.replays.get(replay_id)
    return replay.state, account_of(runtime, replay)


def start_delivering(replay_id: str, reason: str) -> None:
    """Trigger a run of `eventbridge_replay_events` for a replay. If the run exists, do nothing.

    Raises AirflowFailException if Airflow refuses. A task can also trigger a run by an exception, but then it ends.
    """
    from airflow.sdk.exceptions import ErrorType
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import ErrorResponse, TriggerDagRun

    run_id = f"replay__{replay_id}__{reason}"
    response = task_runner.SUPERVISOR_COMMS.send(
        TriggerDagRun(dag_id=REPLAY_DAG, run_id=run_id, conf={"replay_id": replay_id})
    )
    if isinstance(response, ErrorResponse) and response.error != ErrorType.DAGRUN_ALREADY_EXISTS:
        raise AirflowFailException(
            f"replay {replay_id} is recorded, but Airflow does not start a run of {REPLAY_DAG}, which delivers it: "
            f"{response.error} {response.detail or ''}. Check that this DAG exists and has no import error"
        )
