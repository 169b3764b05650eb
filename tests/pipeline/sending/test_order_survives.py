"""Order is kept through failures, dying processes, two pushes of one chunk, retries and waiting times."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, example, given, settings
from pipeline.conftest import Killed, Site
from pipeline.delivering import RUNNER, RunningClock, rules
from pipeline.ordering import Recorder, keyed, ordered

from eventbridge import fault_points
from eventbridge.delivery.push import push
from eventbridge.model.batch import Batch
from eventbridge.pipeline.commit.stage import commit
from eventbridge.pipeline.deliver import deliver_until_idle
from eventbridge.pipeline.ingest.buffer import buffer
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.retry.plan import plan_retries, settle_stale
from eventbridge.pipeline.route.stage import route
from eventbridge.pipeline.settle.dead_letters import write_dead_letters
from eventbridge.pipeline.settle.pending import schedule_retries
from eventbridge.repair.audit import audit
from eventbridge.routing.task import InProcessRouter

KEYS = "abc"
#: Short, so that two pushes of one chunk do not wait for one another for long.
_CHANGES = {"push_timeout": 1, "chunk_max_deliveries": 4, "segment_responses": 2}

_READS = ("ledger.select", "store.get", "store.open", "store.exists", "store.list", "bus.read")
#: What happens, one after the other; a number says at which of its writes and sends a process dies, 0 = it does not.
_dying = st.integers(0, 40)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from(KEYS), st.integers(1, 4)),
        st.tuples(st.just("publish for later"), st.sampled_from(KEYS), st.integers(1, 3)),
        st.tuples(st.just("refuse"), st.sampled_from(KEYS), st.sampled_from([503, 400])),
        st.tuples(st.just("fix"), st.sampled_from(KEYS), st.just(0)),
        st.tuples(st.just("deliver"), st.just(""), _dying),
        st.tuples(st.just("retry"), st.just(""), _dying),
        st.tuples(st.just("deliver twice at once"), st.just(""), _dying),
        st.tuples(st.just("wait"), st.just(""), st.sampled_from([40, 7200])),
    ),
    min_size=4,
    max_size=14,
)


@dataclass
class Life:
    """An installation with one ordered target, and what was published to it."""

    site: Site
    clock: RunningClock
    recorder: Recorder
    published: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KEYS, 0))
    refused: set[tuple[str, int]] = field(default_factory=set)  # ever

    def take(self, step: tuple[str, str, int]) -> None:
        """Run a step; a process that dies is a new one at the next step."""
        what, key, number = step
        if what == "publish":
            for _ in range(number):
                self._publish(key)
        elif what == "publish for later":
            self._publish(key, self.clock() + timedelta(hours=number))
        elif what == "refuse":
            self.recorder.refused[key, self.published[key]] = number
            self.refused.add((key, self.published[key]))
        elif what == "fix":
            self.recorder.refused = {order: code for order, code in self.recorder.refused.items() if order[0] != key}
        elif what == "wait":
            self.clock.advance(number)
        else:
            with dying(number), suppress(Killed):
                self._process(what)
            self.site.reopen(**_CHANGES)

    def _publish(self, key: str, at: datetime | None = None) -> None:
        self.site.publish(keyed(self.published[key], key, at), key=key)
        if at is not None:
            self.recorder.not_before[key, self.published[key]] = at
        self.published[key] += 1

    def _process(self, what: str) -> None:
        runtime = self.site.runtime
        batch = None
        if what == "retry":
            settle_stale(runtime, RUNNER)
            batch = plan_retries(runtime, RUNNER).batch_id
        elif (batch := listen(runtime, RUNNER)) is not None:
            buffer(runtime, batch)
            route(runtime, batch, InProcessRouter(runtime.store))
        if batch is not None:
            self._push(runtime.ledger.batches.get(batch), 2 if what == "deliver twice at once" else 1)
            write_dead_letters(runtime, batch)
            schedule_retries(runtime, batch)
            commit(runtime, batch)

    def _push(self, batch: Batch, times: int) -> None:
        runtime = self.site.runtime
        for chunk in runtime.ledger.chunks.list_for_batch(batch.batch_id):
            if not chunk.handed_out:  # no task pushes it: its deliveries become pending
                continue
            others = [
                threading.Thread(target=self._push_beside, args=(batch, chunk.chunk_id)) for _ in range(times - 1)
            ]
            for other in others:
                other.start()
            try:
                push(runtime, batch.batch_id, chunk.chunk_id)
            finally:  # a killed process is not outlived by its threads
                for other in others:
                    other.join()

    def _push_beside(self, batch: Batch, chunk_id: int) -> None:
        with suppress(Killed):
            push(self.site.runtime, batch.batch_id, chunk_id)

    def heal(self) -> None:
        """Fix everything and deliver until nothing waits."""
        self.recorder.refused.clear()
        runtime = self.site.reopen()
        for _ in range(24):
            self.clock.advance(3 * 3600)
            deliver_until_idle(runtime, RUNNER, InProcessRouter(runtime.store))
            if not [row for row in runtime.ledger.pending.find() if row.state != "closed"]:
                return
        raise AssertionError(
            f"it does not come to an end: {runtime.ledger.pending.find('scheduled')} "
            f"{runtime.ledger.pending.find('on_hold')}"
        )


@contextmanager
def dying(number: int) -> Iterator[None]:
    """Let everything fail from its n-th write or send on, because a dead process can do nothing more."""
    count = 0
    lock = threading.Lock()

    def hook(point: str) -> None:
        nonlocal count
        if point in _READS:
            return
        with lock:
            count += 1
        if count >= number:
            raise Killed

    if number:
        fault_points.install(hook)
    try:
        yield
    finally:
        fault_points.install(None)


def firsts(numbers: list[int]) -> list[int]:
    """Return numbers without their repetitions."""
    return list(dict.fromkeys(numbers))


def numbers(orders: set[tuple[str, int]], key: str) -> set[int]:
    """Return the numbers of a key's orders."""
    return {number for each, number in orders if each == key}


@given(_steps)
@settings(
    max_examples=max(25, settings().max_examples // 10), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@example([("publish", "a", 4), ("refuse", "a", 503), ("publish", "a", 4), ("deliver", "", 0), ("publish", "a", 4),
          ("deliver twice at once", "", 0), ("fix", "a", 0), ("wait", "", 7200), ("retry", "", 9), ("publish", "a", 2),
          ("deliver", "", 22), ("wait", "", 7200), ("retry", "", 0), ("retry", "", 0)])  # fmt: skip
@example([("publish", "a", 4), ("publish", "a", 3), ("publish for later", "a", 1), ("publish", "a", 1),
          ("deliver twice at once", "", 0)])  # fmt: skip
@example([("refuse", "b", 400), ("publish", "b", 4), ("deliver", "", 21), ("deliver", "", 21), ("deliver", "", 23)])
def test_order_is_kept_whatever_happens(monkeypatch: pytest.MonkeyPatch, steps: list[tuple[str, str, int]]) -> None:
    """Everything of a key arrives, or is dead-lettered, in bus order; nothing is tried early, or past an open one."""
    clock = RunningClock()
    recorder = Recorder(clock=clock)
    monkeypatch.setattr("eventbridge.targets.open.open_target", recorder.open)
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder), clock, {})  # type: ignore[arg-type]
        opens, closes = ((clock() + timedelta(hours=hours)).strftime("%H:%M") for hours in (-12, 5))
        hours = f"deliver_between: {{time_zone: UTC, hours: '{opens}-{closes}'}}"
        retry = (
            "retry: {policy: custom, max_retries: 3, initial_delay: 1h, multiplier: 1, "
            "max_delay: 1h, maximum_event_age: 30d}"
        )
        target = ordered(f"ordering_key: $.data.customer, not_before: $.data.at, {hours}", retry)
        site.write_rules(rules({"crm": target}))
        site.reopen(**_CHANGES)
        life = Life(site, clock, recorder)
        try:
            for step in steps:
                life.take(step)
            life.heal()
            reconciliation = audit(site.runtime)
        finally:
            site.close()

    assert reconciliation.differences == ()
    assert recorder.early == []
    for key, count in life.published.items():
        got = recorder.got[key]
        # That one was dead-lettered dies with its process: it is tried again, and all that went after it goes again.
        well = [number for number in got if number not in numbers(life.refused, key)]
        assert firsts(well) == sorted(set(well)), steps
        assert got[-1:] == sorted(got)[-1:], steps
        tried = firsts([number for customer, number in recorder.asked if customer == key])
        assert tried == list(range(count)), steps
    delivered, dead = (
        sum(row[name] for row in reconciliation.deliveries.values()) for name in ("delivered", "dead_lettered")
    )
    assert delivered + dead == sum(life.published.values())
