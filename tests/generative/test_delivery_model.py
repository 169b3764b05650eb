"""The pure core agrees with a simple model under a simulated clock and hostile targets.

The model is made of lists and dictionaries around `batch_size`, `chunking`, `response_to_outcome` and
`reconciliation` of `policy`. Nothing may be lost or repeated, an offset may move only over settled events, no rule may
starve, and retries must follow their policies. HYPOTHESIS_PROFILE=deep runs thousands of stories.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from generative.order_model import Unknown
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eventbridge.event.ids import Fingerprint, delivery_id
from eventbridge.model.outcome import DeadLettered, Delivered, Outcome, Response, RetryAt
from eventbridge.model.partition import Partition
from eventbridge.policy.batch_size import Waiting, plan_ranges
from eventbridge.policy.chunking import ChunkLimits, PlannedPiece, PoolSlots, cut_chunks
from eventbridge.policy.reconciliation import Reconciliation, differences
from eventbridge.policy.response_to_outcome import LAST_CHANCE, RETRY_AFTER_MAX, RetryTerms, decide, expired
from eventbridge.rules.model import RetryPolicy
from eventbridge.rules.types import ChunkSize

_BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
_PARTITIONS = [Partition("orders", "", number) for number in range(3)]
_TIMEOUT_SECONDS = 10.0
#: The ranks by which two outcomes of one delivery are merged, highest first, independent of the product's code.
_RANKS: list[type[Outcome | Unknown]] = [Delivered, DeadLettered, RetryAt, Unknown]

#: By target: its policy, and the shortest and longest wait after each attempt, independent of the product's code.
_POLICIES: dict[str, tuple[RetryPolicy, list[tuple[float, float]]]] = {
    "backoff": (RetryPolicy.from_name("BACKOFF_RETRY"), [(10, 20)] * 3),
    "decay": (
        RetryPolicy.from_name("EXPONENTIAL_DECAY_RETRY", maximum_event_age_seconds=1800),
        [(each, each) for each in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)] + [(512, 512)] * 166,
    ),
    "own": (
        RetryPolicy(
            policy="custom", max_retries=4, initial_delay_seconds=2, multiplier=3, max_delay_seconds=20, jitter=0.5
        ),
        [(1, 3), (3, 9), (9, 27), (10, 30)],
    ),
}

_HOSTILE = st.sampled_from(
    [
        "200",
        "500",
        "503 retry-after 30",
        "503 retry-after 999999",
        "429",
        "400",
        "410",
        "abort",
        "timeout",
        "interrupted",
    ]
)


@dataclass(frozen=True)
class _Delivery:
    """One delivery in the model; `state` is open (in a batch), pending, delivered or dead."""

    raw: bytes
    target: str
    partition: int
    offset: int
    arrived_at: datetime
    attempts: int = 0
    state: str = "open"
    due_at: datetime = _BEGAN


@dataclass
class _Batch:
    """The deliveries of a batch, and their outcomes so far."""

    deliveries: list[bytes]
    ends: dict[int, int]  # only for a normal batch
    handed_out: set[bytes]
    outcomes: dict[bytes, Outcome | Unknown]


class _Product(RuleBasedStateMachine):
    @initialize(limit=st.integers(3, 12))
    def begin(self, limit: int) -> None:
        self.now = _BEGAN
        self.limit = limit
        self.ends = [0, 0, 0]
        self.earliest = [0, 0, 0]
        self.committed = [0, 0, 0]
        self.all: dict[bytes, _Delivery] = {}
        self.batch: _Batch | None = None

    @rule(partition=st.sampled_from([0, 0, 0, 1, 2]), count=st.integers(1, 9))
    def publish(self, partition: int, count: int) -> None:
        self.ends[partition] += count

    @rule(partition=st.integers(0, 2), count=st.integers(1, 5))
    def lose_to_retention(self, partition: int, count: int) -> None:
        taken = self.batch.ends.get(partition, 0) if self.batch is not None else 0
        oldest = max(self.earliest[partition], self.committed[partition], taken)
        self.earliest[partition] = max(self.earliest[partition], min(self.ends[partition], oldest + count))

    @rule(seconds=st.sampled_from([0.2, 1, 5, 20, 60, 600]))
    def let_time_pass(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @precondition(lambda self: self.batch is None)
    @rule(slots=st.integers(0, 2), free=st.integers(0, 2), most=st.integers(1, 4))
    def plan(self, slots: int, free: int, most: int) -> None:
        waiting = [Waiting(_PARTITIONS[q], self.committed[q], self.earliest[q], self.ends[q]) for q in range(3)]
        takes = plan_ranges(waiting, self.limit)
        held = [each for each in waiting if each.end > each.readable_from]

        assert {take.partition for take in takes} >= {each.partition for each in held}, (
            "a partition starves beside a longer one"
        )
        assert (
            sum(take.end - max(take.start, self.earliest[take.partition.partition_id]) for take in takes) <= self.limit
        )

        if takes:
            taken = [self._open(take.partition.partition_id, offset) for take in takes for offset in self._read(take)]
            ends = {take.partition.partition_id: take.end for take in takes}
            self._begin([raw for some in taken for raw in some], ends, slots, free, most)

    @precondition(lambda self: self.batch is None and self._due())
    @rule()
    def plan_retries(self) -> None:
        due = self._due()
        for raw in due:
            self.all[raw] = replace(self.all[raw], state="open")
        self._begin(due, {}, slots=1, free=1, most=len(due))

    @precondition(lambda self: self.batch is not None)
    @rule(responses=st.lists(_HOSTILE, min_size=1, max_size=8), draw=st.floats(0, 0.999), lost=st.booleans())
    def push(self, responses: list[str], draw: float, lost: bool) -> None:
        """Deliver what was handed out; if `lost`, every third response is lost with its process."""
        assert self.batch is not None
        for number, raw in enumerate(sorted(self.batch.handed_out)):
            known = self.batch.outcomes.get(raw, Unknown())
            if isinstance(known, Unknown):
                outcome = self._attempt(raw, responses[number % len(responses)], draw)
                if not (lost and number % 3 == 0):
                    self._take(raw, outcome)

    @precondition(lambda self: self.batch is not None and self.batch.outcomes)
    @rule(other=_HOSTILE, draw=st.floats(0, 0.999))
    def overtake(self, other: str, draw: float) -> None:
        """When another attempt reports a delivery that has a response, the better outcome counts, in any order."""
        assert self.batch is not None
        raw = min(self.batch.outcomes)
        before = self.batch.outcomes[raw]
        after = self._attempt(raw, other, draw)
        self._take(raw, after)

        outcome = self.batch.outcomes[raw]
        assert type(outcome) is min(type(before), type(after), key=_RANKS.index)
        assert not isinstance(before, Delivered) or isinstance(outcome, Delivered)

    @precondition(lambda self: self.batch is not None)
    @rule(wrong=st.sampled_from(["", "", "lose", "double", "forge"]))
    def commit(self, wrong: str) -> None:
        """Settle and commit; a reconciliation in which one delivery is lost, repeated or has another outcome is
        rejected.
        """
        assert self.batch is not None
        settled = {raw: self.batch.outcomes.get(raw, Unknown()) for raw in self.batch.deliveries}
        rows = [(raw, _state(outcome)) for raw, outcome in settled.items()]
        if wrong and rows:
            assert differences(self._reconciliation(_damaged(rows, wrong))) != [], f"{wrong}: all is reconciled"
        assert differences(self._reconciliation(rows)) == []
        for raw, outcome in settled.items():
            self._settle(raw, outcome)
        for partition, end in self.batch.ends.items():
            assert end > self.committed[partition]
            self.committed[partition] = end
        self.batch = None

    @invariant()
    def offsets_cover_only_what_is_settled(self) -> None:
        if not hasattr(self, "all"):
            return
        settled: dict[tuple[int, int], set[str]] = defaultdict(set)
        for each in self.all.values():
            is_open = each.state == "open" and self.batch is not None and bool(self.batch.ends)
            assert not (is_open and each.offset < self.committed[each.partition]), (
                f"{each} is below the offset and open"
            )
            settled[each.partition, each.offset].add(each.target)
        assert all(targets == set(_POLICIES) for targets in settled.values()), "a delivery was lost"

    def teardown(self) -> None:
        """For any further responses, every event is read, and every delivery ends within its policy."""
        if not hasattr(self, "all"):
            return
        if self.batch is not None:
            self.commit(wrong="")
        rounds = sum(self.ends) + 10
        while any(end > at for end, at in zip(self.ends, self.committed, strict=True)):
            rounds -= 1
            assert rounds > 0, "events are never taken"
            self.plan(slots=1, free=1, most=3)
            self.commit(wrong="")
        rounds = 3 * max(policy.max_retries + 2 for policy, _ in _POLICIES.values()) * 4
        while pending := [each for each in self.all.values() if each.state == "pending"]:
            rounds -= 1
            assert rounds > 0, f"{pending[0]} never ends"
            self.now = max(self.now, min(each.due_at for each in pending))
            self.plan_retries()
            self.push(["500", "503 retry-after 5", "timeout", "503 retry-after 30", "429"], 0.5, lost=False)
            self.commit(wrong="")
        assert {each.state for each in self.all.values()} <= {"delivered", "dead"}

    def _read(self, take: tuple[Partition, int, int]) -> Iterable[int]:
        partition, start, end = take
        return range(max(start, self.earliest[partition.partition_id]), end)

    def _open(self, partition: int, offset: int) -> list[bytes]:
        made = []
        for target in _POLICIES:
            raw = delivery_id("orders", str(partition), str(offset), "rule", target)
            assert raw not in self.all, "an offset was taken twice"
            self.all[raw] = _Delivery(raw, target, partition, offset, self.now)
            made.append(raw)
        return made

    def _due(self) -> list[bytes]:
        return sorted(raw for raw, each in self.all.items() if each.state == "pending" and each.due_at <= self.now)

    def _begin(self, taken: list[bytes], ends: dict[int, int], slots: int, free: int, most: int) -> None:
        """Divide the batch into chunks and record which deliveries are handed out to a push."""
        by_target: dict[str, list[bytes]] = defaultdict(list)
        for raw in taken:
            by_target[self.all[raw].target].append(raw)
        pieces = [
            PlannedPiece("own" if target == "own" else "shared", 500, "rule", target, target, target, f"{row}", 1, 100)
            for target, some in by_target.items()
            for row in range(len(some))
        ]
        pools = {"own": PoolSlots(slots, free)}
        limits = ChunkLimits(ChunkSize(7, 650), max_handed_out=most, pools=pools)
        plans = cut_chunks(pieces, limits, {})

        assert Counter(piece for plan in plans for piece in plan.pieces) == Counter(pieces), "rows are lost or doubled"
        assert all(plan.count <= 7 and plan.size <= 650 for plan in plans)
        out = [plan for plan in plans if plan.handed_out]
        assert sum(plan.pool == "own" for plan in out) <= 2 * free
        assert len(out) <= most
        assert out or "shared" not in {plan.pool for plan in plans}, "a pool with room gets nothing"

        handed_out = {by_target[piece.target][int(piece.rows)] for plan in out for piece in plan.pieces}
        self.batch = _Batch(taken, ends, handed_out, {})

    def _attempt(self, raw: bytes, how: str, draw: float) -> Outcome:
        """Make one attempt, and compare the outcome of `decide` with the policy in this module."""
        each = self.all[raw]
        policy, waits = _POLICIES[each.target]
        over = expired(policy, each.arrived_at, 0.0, self.now)
        if over is not None:
            return over
        response = _response(how, self.now)
        attempts = each.attempts + 1
        outcome = decide(
            response,
            RetryTerms(policy, _TIMEOUT_SECONDS),
            attempts=attempts,
            arrived_at=each.arrived_at,
            on_hold_seconds=0.0,
            now=self.now,
            draw=draw,
        )
        self.all[raw] = replace(each, attempts=attempts)
        age = timedelta(seconds=policy.maximum_event_age_seconds)
        match outcome:
            case RetryAt(due_at, "Interrupted"):
                assert how == "interrupted"
                assert due_at - self.now == timedelta(seconds=_TIMEOUT_SECONDS), "its response may come until then"
            case RetryAt(due_at):
                shortest, longest = (timedelta(seconds=each) for each in waits[attempts - 1])
                asked = timedelta(seconds=int(how.split()[-1])) if "retry-after" in how else timedelta(0)
                # a target that asks for a longer wait is tried once more just before the event is too old
                asked = min(asked, RETRY_AFTER_MAX, each.arrived_at + age - LAST_CHANCE - self.now)
                assert max(shortest, asked) <= due_at - self.now <= max(longest, asked)
                assert due_at - each.arrived_at < age
            case DeadLettered("maximum_retry_attempts"):
                assert attempts > policy.max_retries  # greater by more than one only if two attempts overlapped
            case DeadLettered("maximum_event_age"):
                assert self.now + timedelta(seconds=waits[attempts - 1][1]) - each.arrived_at >= age
            case DeadLettered(reason):
                assert (reason, how) in {("target_gone", "410"), ("non_retryable", "400"), ("non_retryable", "abort")}
            case Delivered():
                assert how == "200"
        assert (
            attempts <= policy.max_retries + 1 or how == "interrupted" or isinstance(outcome, Delivered | DeadLettered)
        )
        return outcome

    def _take(self, raw: bytes, outcome: Outcome) -> None:
        assert self.batch is not None
        known = self.batch.outcomes.get(raw)
        if known is None or _RANKS.index(type(outcome)) <= _RANKS.index(type(known)):
            self.batch.outcomes[raw] = outcome

    def _settle(self, raw: bytes, outcome: Outcome | Unknown) -> None:
        each = self.all[raw]
        if isinstance(outcome, RetryAt | Unknown):
            due_at = outcome.due_at if isinstance(outcome, RetryAt) else self.now
            self.all[raw] = replace(each, state="pending", due_at=due_at)
        else:
            self.all[raw] = replace(each, state=_state(outcome))

    def _reconciliation(self, rows: list[tuple[bytes, str]]) -> Reconciliation:
        """Return the reconciliation of the batch, whose files contain `rows`."""
        assert self.batch is not None
        by_state: dict[str, list[bytes]] = defaultdict(list)
        for raw, state in rows:
            by_state[state].append(raw)
        matched = self._fingerprints(self.batch.deliveries)
        pending, dead = self._fingerprints(by_state["pending"]), self._fingerprints(by_state["dead"])
        truly = {raw for raw in self.batch.deliveries if isinstance(self.batch.outcomes.get(raw), Delivered)}
        return Reconciliation(
            unproven=sum(raw not in truly for raw in by_state["delivered"]),
            matched=matched,
            recorded=matched,
            delivered=self._fingerprints(by_state["delivered"]),
            pending_by_settlement=pending,
            pending=pending,
            dead_by_settlement=dead,
            dead=dead,
        )

    def _fingerprints(self, raws: Iterable[bytes]) -> dict[str, Fingerprint]:
        by_target: dict[str, list[bytes]] = defaultdict(list)
        for raw in raws:
            by_target[f"rule/{self.all[raw].target}"].append(raw)
        return {key: Fingerprint.from_ids(some) for key, some in by_target.items()}


def _state(outcome: Outcome | Unknown) -> str:
    return {Delivered: "delivered", DeadLettered: "dead"}.get(type(outcome), "pending")


def _damaged(rows: list[tuple[bytes, str]], wrong: str) -> list[tuple[bytes, str]]:
    """Return the rows with the first one lost, repeated, or shown as delivered without a response."""
    if wrong == "lose":
        return rows[1:]
    if wrong == "double":
        return [*rows, rows[0]]
    no_response = [(raw, state) for raw, state in rows if state != "delivered"]
    if not no_response:
        return rows[1:]
    forged = no_response[0][0]
    return [(raw, "delivered" if raw == forged else state) for raw, state in rows]


def _response(how: str, now: datetime) -> Response:
    code = int(how.split()[0]) if how[0].isdigit() else None
    classes = {"timeout": "Timeout", "interrupted": "Interrupted"}
    return Response(
        accepted=code == 200,
        started_at=now,
        duration_ms=1.0,
        code=500 if how == "abort" else code,
        error_class=classes.get(how),
        retry_after=how.split()[-1] if "retry-after" in how else None,
        abort=how == "abort",
    )


TestDelivery = _Product.TestCase
TestDelivery.settings = settings(stateful_step_count=30, max_examples=max(60, settings().max_examples // 5))
