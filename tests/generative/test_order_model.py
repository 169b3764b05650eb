"""The ordering decisions agree with a simple model with retries, dying and sleeping pushes, waits and rules on hold.

The steps of many pushes run in any order. A delivery may be sent only after every earlier one of its key and partition
has been delivered or dead-lettered, and never while another one of its key may still arrive. A failing key must not
delay another key, and every story must end. `tests/pipeline/sending/test_order_survives.py` tests the stages in the
same way. HYPOTHESIS_PROFILE=deep runs thousands of stories.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from generative.order_model import KEYS, PARTITIONS, Batch, Delivery, OrderModel
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from eventbridge.model.partition import Partition
from eventbridge.policy.ordering import RELEASED, SINGLE_KEY, SKIPPED

_KEY, _PARTITION = st.sampled_from(KEYS), st.sampled_from(PARTITIONS)
_RESPONSES = st.lists(st.sampled_from(["200", "200", "503", "400", "timeout", "interrupted"]), min_size=1, max_size=3)
_PAUSE = st.sampled_from([0, 0, 0, 3, 8, 25])

#: Steps: which push gets which responses after how many seconds, and whether it records them.
Steps = list[tuple[int, float, list[str], bool]]
_STEPS = st.lists(st.tuples(st.integers(0, 9), _PAUSE, _RESPONSES, st.booleans()), min_size=2, max_size=9)


class _Orders(RuleBasedStateMachine):
    @initialize(strict=st.sampled_from([False, False, True]), first=st.lists(st.tuples(_KEY, _PARTITION), max_size=6))
    def begin(self, strict: bool, first: list[tuple[str, Partition]]) -> None:
        self.model = OrderModel(strict=strict)
        for key, partition in first:
            self.model.publish(key, partition)

    @rule(key=_KEY, partition=_PARTITION, count=st.integers(1, 3), minutes=st.sampled_from([0, 0, 1, 90]))
    def publish(self, key: str, partition: Partition, count: int, minutes: int) -> None:
        for _ in range(count):
            self.model.publish(key, partition, self.model.now + timedelta(minutes=minutes) if minutes else None)

    @rule(seconds=st.sampled_from([8, 60, 5400]))
    def let_time_pass(self, seconds: float) -> None:
        self.model.now += timedelta(seconds=seconds)

    @precondition(lambda self: self.model.normal is None)
    @rule(most=st.integers(1, 6), steps=_STEPS)
    def plan(self, most: int, steps: Steps) -> None:
        self.model.plan(most)
        if self.model.normal is not None:
            self._push(self.model.normal)
        self.work(steps)

    @precondition(lambda self: self.model.rows)
    @rule(most=st.integers(1, 6), steps=_STEPS)
    def plan_retries(self, most: int, steps: Steps) -> None:
        known = self.model.batches
        self.model.plan_retries(most)
        for batch in self.model.batches:
            if batch not in known:
                self._push(batch)
        self.work(steps)

    @precondition(lambda self: self.model.batches)
    @rule(which=st.integers(0, 9), steps=_STEPS)
    def push_again(self, which: int, steps: Steps) -> None:
        """Begin further pushes of batches that other pushes may work on, sleep with or have died with."""
        self._push(self.model.batches[which % len(self.model.batches)])
        self.work(steps)

    @precondition(lambda self: self.model.pushes)
    @rule(steps=_STEPS)
    def work(self, steps: Steps) -> None:
        """Let pushes, one at a time, take their responses, perhaps record them, and send the next deliveries."""
        for which, pause, responses, write in steps:
            self.model.now += timedelta(seconds=pause)
            if self.model.pushes:
                push = self.model.pushes[which % len(self.model.pushes)]
                self.model.step(push, lambda each, said=responses: said[each.position.offset % len(said)], write=write)

    @precondition(lambda self: self.model.pushes)
    @rule(which=st.integers(0, 9))
    def die(self, which: int) -> None:
        """Let a push die: its unrecorded responses are lost, but its lease and its requests in flight remain."""
        self.model.pushes.pop(which % len(self.model.pushes))

    @precondition(lambda self: self.model.batches)
    @rule(which=st.integers(0, 9))
    def commit(self, which: int) -> None:
        self.model.commit(self.model.batches[which % len(self.model.batches)])

    @precondition(lambda self: self.model.on_hold)
    @rule(note=st.sampled_from([RELEASED, SKIPPED]))
    def release(self, note: str) -> None:
        self.model.release(note)

    def teardown(self) -> None:
        """While one key keeps failing, all other keys finish soon; then it finishes too."""
        if not hasattr(self, "model"):
            return
        self.model.now += timedelta(hours=2)
        failing = SINGLE_KEY if self.model.strict else KEYS[0]
        self._run(10, lambda each: "503" if each.key == failing else "200", lambda each: each.key != failing)
        self._run(40, lambda _: "200", lambda _: True)

    def _push(self, batch: Batch) -> None:
        for shard in batch.shards:
            self.model.begin_push(batch, shard)

    def _run(self, rounds: int, response: Callable[[Delivery], str], must_end: Callable[[Delivery], bool]) -> None:
        model = self.model
        while left := [each for each in model.left if must_end(each)]:
            rounds -= 1
            assert rounds >= 0, f"{left[0]} starves"
            model.release(RELEASED)
            if model.normal is None:
                model.plan(most=1_000)
            model.plan_retries(most=1_000)
            pushes = [model.begin_push(batch, shard) for batch in model.batches for shard in batch.shards]
            for _ in range(2 * len(model.left) + 4):
                for push in pushes:
                    if push in model.pushes:
                        model.step(push, response, write=True)
            for batch in model.batches:
                model.commit(batch)
            model.now += timedelta(seconds=600)


TestOrders = _Orders.TestCase
TestOrders.settings = settings(stateful_step_count=40)
