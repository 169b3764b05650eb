"""All budgeted rules of a batch share a total budget; rules that get no turn go to the slow lane."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from msgspec import structs
from pipeline.budgeted import BUDGETS, landed

from eventbridge.errors import SparkError
from eventbridge.model.file_detail import RoutedShare
from eventbridge.pipeline.deliver import deliver_batch, deliver_deferred_matches
from eventbridge.pipeline.retry.deferred import due_deferred_matches
from eventbridge.pipeline.route.stage import job_of, route
from eventbridge.repair.audit import audit
from eventbridge.routing.budgeted_share import route_share
from eventbridge.routing.job import RouteJob, Router, RuleShare, SliceResult, Task
from eventbridge.routing.share_budget import shuffle_shares
from eventbridge.routing.task import InProcessRouter
from eventbridge.rules import RuleSet, Transform
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.testing.poison import POISONED, compile_program, route_with_poison

Order = Callable[..., bytes]

#: With a budget of 0.2 s each, the first two or three of them spend the total.
EXPENSIVE, TOTAL_SECONDS = 12, 0.3

RULE = "  NAME: {bus: orders, pattern: {}, targets: {lines: {type: file, path: FOLDER/NAME.jsonl}}}\n"
HEAD = """
buses:
  orders: {source: {type: embedded, topics: [placed], partitions: 1, start_at: earliest}}
rules:
"""


class Looping(Runtime):
    """A runtime whose rules named expensive-... run the test program `program`."""

    program = "loop"

    def rule_files(self) -> RuleSet:
        """Return the current rules."""
        rules = super().rule_files()
        transform = Transform(form="JSONATA", value=self.program)
        changed = {}
        for name, rule in rules.rules.items():
            targets = {key: each.model_copy(update={"transform": transform}) for key, each in rule.targets.items()}
            if name.startswith("expensive"):
                changed[name] = type(rule)(**{**dict(rule), "targets": targets, "version": ""})
        return RuleSet(buses=rules.buses, rules=rules.rules | changed)


class Fixed(Looping):
    """The same runtime with programs that no longer loop."""

    program = "$.id"


@pytest.fixture
def runtime(site: Any, order: Order) -> Looping:
    """Provide a runtime with a cheap rule and many that loop at the first of two published events."""
    names = ["cheap", *(f"expensive-{number:02d}" for number in range(EXPENSIVE))]
    rules = "".join(RULE.replace("NAME", name) for name in names)
    site.write_rules(HEAD + rules.replace("FOLDER", str(site.folder)))
    site.publish(order(0, subject=POISONED), order(1), key="k")
    return Looping(**vars(site.reopen(**BUDGETS, route_total_cpu_budget=TOTAL_SECONDS)))


def router(runtime: Runtime) -> InProcessRouter:
    """Return a router that runs the programs."""
    return InProcessRouter(runtime.store, route_with_poison)


def reasons(runtime: Runtime) -> Counter[str]:
    """Return the number of pending deferred matches by reason."""
    return Counter(each.reason for each in runtime.ledger.deferred_matches.waiting())


def received(runtime: Runtime, name: str) -> int:
    """Return how many payloads a rule's target has received."""
    path = runtime.settings.home / f"{name}.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_many_rules_that_loop_cost_the_others_one_total(runtime: Looping) -> None:
    """Rules use their budgets until the total is spent, and the others are deferred; after a fix each delivers all."""
    deliver_batch(runtime, "orders", router(runtime), Stop())

    found = reasons(runtime)
    assert received(runtime, "cheap") == 2
    assert found.total() == EXPENSIVE
    assert set(found) == {"budget", "crowded"}
    assert 1 <= found["budget"] <= 3
    assert audit(runtime).differences == ()

    fixed = Fixed(**vars(runtime))
    while due_deferred_matches(fixed) is not None:
        deliver_deferred_matches(fixed, "orders", router(fixed), Stop())
    assert [received(runtime, f"expensive-{number:02d}") for number in range(EXPENSIVE)] == [2] * EXPENSIVE
    assert audit(runtime).differences == ()


def test_a_rule_without_a_turn_comes_before_one_that_used_up_its_budget(runtime: Looping) -> None:
    """Among deferred matches of the same age, rules without a turn come before those that used up their budget."""
    deliver_batch(runtime, "orders", router(runtime), Stop())
    crowded = reasons(runtime)["crowded"]
    fixed = Fixed(**vars(runtime))

    for _ in range(crowded):
        deliver_deferred_matches(fixed, "orders", router(fixed), Stop())

    assert crowded
    assert set(reasons(runtime)) == {"budget"}


class Failing(InProcessRouter):
    """A router that fails whenever several shares are routed as one job."""

    def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
        if sum(isinstance(task, RuleShare) for task in tasks) > 1:
            raise SparkError("a worker exited unexpectedly")
        return super().route_slices(job, tasks)


def test_shares_that_are_tried_alone_have_a_total_as_well(runtime: Looping) -> None:
    """If the job of all shares fails, they are routed one by one within the same total budget."""
    route(runtime, landed(runtime), Failing(runtime.store, route_with_poison))

    found = reasons(runtime)
    assert found.total() == EXPENSIVE
    assert 1 <= found["budget"] <= 3
    assert runtime.ledger.rules.list_on_hold() == {}


def test_turns_are_drawn_again_for_every_batch() -> None:
    """Each rule comes first in some batches, and the order does not depend on the try or on the list's order."""
    shares = [RuleShare(f"rule/{name}", name, (), 1.0) for name in "abcdefgh"]
    orders = {batch: [share.rule for share in shuffle_shares(batch, shares)] for batch in map(str, range(400))}

    assert all(
        [share.rule for share in shuffle_shares(batch, shares[::-1])] == order for batch, order in orders.items()
    )
    firsts = Counter(order[0] for order in orders.values())
    assert set(firsts) == set("abcdefgh")
    assert max(firsts.values()) < 3 * min(firsts.values())


def test_a_worker_that_has_spent_the_total_begins_with_no_further_share(runtime: Looping) -> None:
    """It defers it unseen, in this job; what Spark SQL was asked about had its turn; another job has a total too."""
    batch_id = landed(runtime)
    job = job_of(runtime, runtime.ledger.batches.get(batch_id))
    (file,) = runtime.ledger.files.list_for_batch(batch_id, "buffer")
    shares = [
        RuleShare(f"rule/{name}", name, ((file.path or "", "0-1"),), 0.4) for name in ("expensive-00", "expensive-01")
    ]

    def reason(job: RouteJob, share: RuleShare) -> str:
        result = route_share(runtime.store, runtime.rule_set(), job, share, compile_program)
        assert isinstance(result.detail, RoutedShare)
        return result.detail.reason

    assert [reason(job, share) for share in shares] == ["budget", "crowded"]
    assert reason(structs.replace(job, attempt="another"), shares[1]) == "budget"
    assert reason(structs.replace(job, attempt="another"), structs.replace(shares[1], results="none")) == "budget"
    assert [reason(structs.replace(job, attempt="endless", budgeted_seconds=0.0), share) for share in shares] == [
        "budget"
    ] * 2


def test_a_batch_of_deferred_matches_has_no_total(runtime: Looping) -> None:
    """A batch of deferred matches has no total budget, because it has a single rule and no rule waits for it."""
    asked: list[float] = []

    class Noting(InProcessRouter):
        def route_slices(self, job: RouteJob, tasks: Sequence[Task]) -> Iterator[SliceResult]:
            asked.append(job.budgeted_seconds)
            return super().route_slices(job, tasks)

    noting: Router = Noting(runtime.store, route_with_poison)
    deliver_batch(runtime, "orders", noting, Stop())
    normal = len(asked)
    deliver_deferred_matches(runtime, "orders", noting, Stop())

    assert asked == [TOTAL_SECONDS] * normal + [0.0]
