"""How the tests of tests/pipeline deliver, in batch or streaming mode, and which tests only one mode supports."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from eventbridge.pipeline.deliver import deliver_batch, deliver_until_idle
from eventbridge.routing.task import InProcessRouter
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.streaming.lease import Bounds, waiting_events
from eventbridge.streaming.task import deliver_streaming

MODE = os.environ.get("EVENTBRIDGE_TEST_MODE", "batch")

#: How long after its last event a streaming task of a test ends; longer if it also polls a broker.
_IDLE_SECONDS, _BROKER_IDLE_SECONDS = 0.5, 3.0
#: The maximum number of streaming tasks. As with the watcher, another one starts if events are still pending, because
#: a streaming task that finishes the batch of a dead one may end as idle.
_STREAMING_TASKS = 3

#: Tests of tests/pipeline that are skipped in streaming mode, by reason; a file means all of its tests.
_LEFT_OUT = {
    "calls stages one by one, or none": """
        test_backtest.py test_bucket_rules.py test_buffer.py test_compile_ahead.py test_budgeted_rules.py
        test_rules_on_hold.py test_jsonata_budget.py test_listen.py test_listen_lost_ledger.py test_lost_bus.py
        test_published_rules.py test_retention_cost.py test_route.py test_route_by_hand.py
        test_route_chunks.py test_route_poison.py test_route_program.py test_route_stopped.py test_schemas.py
        test_share_turns.py test_shared_landing.py test_inbox.py test_instrumented.py sending/test_backlog.py
        sending/test_bad_neighbours.py sending/test_ended_certificates.py sending/test_fair_turns.py
        sending/test_order_survives.py sending/test_repairs_at_once.py sending/test_settle_and_commit.py
        sending/test_try_target.py sending/test_queue_survives.py
    """,
    "uses streaming tasks and stages together in any mode": """
        test_dropped_batch.py sending/test_chunk_pages.py sending/test_streaming.py sending/test_streaming_handover.py
        sending/test_streaming_close.py sending/test_streaming_file.py sending/test_streaming_left.py
        sending/test_streaming_taken_over.py sending/test_streaming_targets.py sending/test_moved_while_streaming.py
        sending/test_open_batch.py
    """,
    "a streaming task as short as a test's makes one attempt and leaves the rest to the retries": """
        sending/test_retries.py::test_a_degraded_target_gets_one_retry_chunk_at_a_time_until_it_heals
        sending/test_batch_requests.py::test_items_refused_in_one_request_are_retried_together
        sending/test_batch_requests.py::test_a_target_that_is_probed_gets_one_item
    """,
    "about a target with slow responses: a streaming task waits for none, and calls none slow": """
        sending/test_slow_target.py
        sending/test_sent_once.py::test_a_process_without_a_processor_does_not_degrade_a_healthy_target
        sending/test_open_breaker.py::test_a_target_that_does_not_settle_half_within_its_budget_is_out_of_the_way
    """,
    "about the budget of a push: a streaming task waits for each timeout": """
        sending/test_push.py::test_a_delivery_in_flight_at_the_end_of_the_budget_is_sent_again_under_its_id
    """,
    "about the number of events in a batch: a streaming task takes what comes": """
        sending/test_pace.py sending/test_fan_out.py
        sending/test_broken_rules.py::test_a_batch_in_progress_is_finished_while_the_rule_files_are_broken
        sending/test_moved_rules.py::test_the_batch_of_a_runner_without_rules_is_finished_by_the_new_one
    """,
    "a streaming task sends before it lands, so the steps come in another order": """
        sending/test_why.py::test_an_event_is_reported_from_publishing_to_delivery
    """,
    "a streaming task dead-letters at once what may not be sent before its deadline": """
        sending/test_deadlines.py::test_the_planner_of_retries_finds_late_rows
    """,
    "its bus is the broker that dies, and a streaming task keeps reading": """
        sending/test_rocketmq_order.py::test_a_broker_that_dies_during_a_push_loses_nothing
    """,
}
ONLY_IN_BATCH_MODE: Mapping[str, str] = {test: why for why, tests in _LEFT_OUT.items() for test in tests.split()}


@dataclass
class StreamingRuns:
    """The result of a run in streaming mode: streaming tasks that ran, tests without one, and tests left out."""

    streaming_tasks: int = 0
    with_streaming_tasks: int = 0
    without: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


STREAMING_RUNS = StreamingRuns()


def deliver_all(runtime: Runtime, runner: str, mode: str = MODE) -> None:
    """Deliver until nothing is available or due; in streaming mode a streaming task takes all that is available."""
    if mode == "streaming":
        run_streaming_task(runtime, runner)
    idle = deliver_until_idle(runtime, runner, InProcessRouter(runtime.store))
    assert mode == "batch" or idle.batches == 0, "the streaming task left events to the stages"


def deliver_one_batch(runtime: Runtime, runner: str, mode: str = MODE, idle_seconds: float = 0.0) -> str | None:
    """Deliver one batch, or in streaming mode those of a streaming task; return the id of the first.

    `idle_seconds` is how long the streaming task waits for events and retries, if longer than usual.
    """
    if mode == "batch":
        return deliver_batch(runtime, runner, InProcessRouter(runtime.store), Stop())
    known = {batch.batch_id for batch in runtime.ledger.batches.find(limit=None, state="committed")}
    run_streaming_task(runtime, runner, idle_seconds)
    done = runtime.ledger.batches.find(limit=None, state="committed")
    found = [batch for batch in done if batch.kind == "normal" and batch.batch_id not in known]
    return min(found, key=lambda batch: batch.planned_at).batch_id if found else None


def run_streaming_task(runtime: Runtime, runner: str, idle_seconds: float = 0.0) -> None:
    """Deliver available events in a streaming task, which ends when no more arrive; pending deliveries remain."""
    rules = runtime.rule_set()
    bus = rules.buses.get(rules.runners().get(runner, ""))
    idle = _IDLE_SECONDS if bus is None or bus.source.type == "embedded" else _BROKER_IDLE_SECONDS
    for _ in range(_STREAMING_TASKS):
        STREAMING_RUNS.streaming_tasks += 1
        bounds = Bounds(idle_seconds=max(idle, idle_seconds), makes_retries=False)
        deliver_streaming(runtime, runner, Stop(), bounds)
        if bus is None or not waiting_events(runtime, runner):
            return


def why_left_out(test: str) -> str | None:
    """Return why a test, such as `sending/test_push.py::test_a`, runs in batch mode only, None if in both modes."""
    return ONLY_IN_BATCH_MODE.get(test.partition("[")[0], ONLY_IN_BATCH_MODE.get(test.partition("::")[0]))
