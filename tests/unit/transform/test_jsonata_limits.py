"""Whatever a JSONata expression does, it ends, says why, and nothing else notices."""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from transform_scope import SCOPE

from eventbridge.errors import BudgetSpent, TransformFailed
from eventbridge.event.cloudevent import Event, parse_event
from eventbridge.rules import Transform
from eventbridge.transform import Budget, compile_transform
from eventbridge.transform.jsonata.process import EVALUATOR, Evaluator

CPU = "the expression took more than 1 s of CPU time"
MEMORY = "the expression took more than 512 MiB of memory"


def event(number: int = 1) -> Event:
    """Return an event with a number in its data."""
    body = f'{{"specversion":"1.0","id":"{number}","source":"/s","type":"t","data":{{"n":{number}}}}}'
    return parse_event(body.encode(), max_bytes=1_000_000)


def evaluated(expression: str, number: int = 1, budget: Budget | None = None) -> str:
    """Return what an expression makes of that event."""
    renderer = compile_transform(Transform(form="JSONATA", value=expression))
    return renderer.render(event(number), SCOPE._replace(budget=budget)).payload.decode()


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("($f := function($x) {$f($x)}; $f(1))", CPU),
        ("($f := function($x) {1 + $f($x)}; $f(1))", "the expression or its result is nested too deep"),
        ("[1..1e9]", "The size of the sequence allocated by the range operator (..) must not exceed 1e6. "),
        ("[1..9999].[1..9999].[1..9999]", ""),
        ('$match("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!", /^(a+)+$/)', CPU),
        ('$pad("x", 1e10)', MEMORY),
        ('($d := function($s, $n) {$n = 0 ? $s : $d($s & $s, $n - 1)}; $d("xxxxxxxxxx", 32))', ""),
        ('$pad("x", 9e6)', "the result has 9,000,002 bytes; the maximum is 8,388,608"),
    ],
)
def test_an_expression_that_takes_too_much_fails_alone(expression: str, message: str) -> None:
    """Loops, recursion, ranges, backtracking, memory, size: a failure of that event, and the next one is evaluated."""
    with pytest.raises(TransformFailed) as failed:
        evaluated(expression)

    assert str(failed.value).startswith(message)
    assert evaluated("data.n + 1") == "2"


def test_a_budget_counts_cpu_time_and_stops_when_it_is_spent() -> None:
    """Each evaluation is charged, also one that fails; once nothing is left nothing is evaluated."""
    budget = Budget(0.5)
    assert evaluated("data.n", budget=budget) == "1"
    assert 0 < budget.spent_seconds < 0.5
    with pytest.raises(TransformFailed):
        evaluated("($f := function($x) {$f($x)}; $f(1))", budget=budget)
    assert 0.5 < budget.spent_seconds < 3  # ticks, not seconds, end an evaluation after about one

    spent = budget.spent_seconds
    with pytest.raises(BudgetSpent, match=r"the CPU budget of 0\.5 s is spent"):
        evaluated("data.n", budget=budget)
    assert budget.spent_seconds == spent


def test_nothing_is_kept_from_one_event_to_the_next() -> None:
    """A variable assigned at the top of an expression is removed with its event."""
    assert evaluated("$x := data.n") == "1"
    assert evaluated("$x") == "null"
    assert evaluated("($exists($x) ? 0 : ($x := 5; data.n))", 3) == "3"


def test_threads_take_turns() -> None:
    """Each thread gets the response to its own event."""
    with ThreadPoolExecutor(8) as threads:
        responses = list(threads.map(lambda number: evaluated("data.n * 2", number), range(200)))

    assert responses == [str(2 * number) for number in range(200)]


def test_a_process_that_was_killed_is_replaced() -> None:
    """An operator or the kernel may kill the evaluator: the event is evaluated by the next one."""
    assert evaluated("data.n") == "1"
    process = EVALUATOR._process
    assert process is not None
    process.send_signal(signal.SIGKILL)

    assert evaluated("data.n", 2) == "2"


def test_a_fork_has_an_evaluator_of_its_own() -> None:
    """A forked worker does not write into its parent's pipes, and the parent's evaluator outlives it."""
    assert evaluated("data.n") == "1"
    before = EVALUATOR._process
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if EVALUATOR._process is None and evaluated("data.n * 3", 2) == "6" else 2
            EVALUATOR.close()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert evaluated("data.n", 4) == "4"
    assert EVALUATOR._process is before


def test_the_evaluator_is_an_ordinary_child() -> None:
    """It starts when it is first asked, ends when it is closed, and starts again."""
    evaluator = Evaluator()
    assert evaluator._process is None
    assert evaluator.ask(b"1 + 1", b"{}", b"{}").payload == b"2"
    process = evaluator._process
    evaluator.close()
    assert process is not None
    assert process.returncode is not None
    assert evaluator.ask(b"1 + 2", b"{}", b"{}").payload == b"3"
    evaluator.close()


def test_reading_expressions_leaves_the_interpreter_as_it_was() -> None:
    """The library raises the limit of recursion when it is imported; ours stays."""
    limit = sys.getrecursionlimit()
    compile_transform(Transform(form="JSONATA", value="data.n"))

    assert sys.getrecursionlimit() == limit
