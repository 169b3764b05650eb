"""What `make bench-match` prints of its measurements: every row that was promised, each goal and floor judged."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import pytest
from benchmarks.match import goals
from benchmarks.match.__main__ import report
from benchmarks.match.breakdown import Shares
from benchmarks.match.event_ruler import require_tools
from benchmarks.match.kernel import Pass
from benchmarks.match.lines import sections
from benchmarks.match.remote import BenchError
from benchmarks.match.results import Results
from benchmarks.match.sets import PROFILED, Key, hostile_sets, routed_sets, rule_sets, slow_sets
from benchmarks.match.table import Comparison, Line, Sections, print_shares, print_table, summary_lines
from benchmarks.match.worker import Memory
from benchmarks.match.workload import QUICK, SIZES, Scale, Workload
from rich.console import Console

RATES = {"kernel": 2e6, "event ruler": 1e4, "udf": 1e4, "route": 5e5, "whole route": 3e5, "whole route on Spark": 3e5}
RULES = (1, 10, 100, 1_000, 10_000)


@pytest.fixture
def work(tmp_path: Path) -> Workload:
    """A workload of full size, of which nothing is made."""
    return Workload(tmp_path, Scale())


def test_results_that_reach_everything_keep_every_goal(work: Workload) -> None:
    """Of fast results every goal and every floor is met."""
    assert list(summary_lines(sections(work, _results(work)))) == ["40 of 40 goals met", "10 of 10 floors met"]


def test_every_promised_row_has_its_goal(work: Workload) -> None:
    """Both rates at every number of rules with goal and floor; ratios, adversarial sets, route, and one worker."""
    rows = _rows(sections(work, _results(work)))
    short = [name for name in rows if name[0] == "mixed rules, events of 519 bytes"]
    bounds = {name: [(one.goal, one.floor) for one in rows[name].comparisons] for name in rows}

    for count in RULES:
        times = (goals.TIMES_EVENT_RULER.get(count), None)
        kernel, route = (short[0][0], "kernel", count), (short[0][0], "kernel in Spark's workers", count)
        assert bounds[kernel] == [(goals.KERNEL[count], goals.FLOORS["kernel"][count]), times]
        assert bounds[route] == [(goals.ROUTE[count], goals.FLOORS["route"][count]), (None, None)]
        long = "mixed rules, events of 4,096 bytes, beside the goals for 519"
        assert bounds[long, "kernel", count] == [times], "of the long events only the ratio is judged"
    of_mixed = [line for (part, _, _), line in rows.items() if part in ("rules of one kind", "kernel, made to hurt")]
    for line in of_mixed:
        ours = [one.goal for one in line.comparisons if one.unit.startswith("x mixed")]
        assert set(ours) == (set() if line.what.startswith("Event Ruler") else {0.2}), line
    routed = {name: line for (part, name, count), line in rows.items() if part.startswith("route") and count == 100}
    assert {name: [one.goal for one in line.comparisons] for name, line in routed.items()} == {
        "few matches, in one process": [200_000, None],
        "many matches, in one process": [200_000],
        "few matches, on Spark": [200_000, None],
        "many matches, on Spark": [200_000],
    }
    worker = [line.comparisons[0] for (part, _, _), line in rows.items() if part == "one worker" and line.comparisons]
    assert [(one.goal, one.unit, one.at_most) for one in worker] == [
        (400, "MB", True),
        (1, "CPU-s", True),
        (5, "CPU-s", True),
        (0.5, "CPU-s", True),
        (2, "CPU-s", True),
    ]


def test_the_rows_are_those_that_were_asked_for(work: Workload) -> None:
    """Event Ruler alone and as a UDF at both sizes; three kinds alone; four sets made to hurt; what is slow."""
    rows = set(_rows(sections(work, _results(work))))
    wanted = {
        *itertools.product(
            (
                "mixed rules, events of 519 bytes",
                "mixed rules, events of 4,096 bytes, beside the goals for 519",
            ),
            ("kernel", "Event Ruler 2.0.1", "kernel in Spark's workers", "Event Ruler, a UDF on Spark"),
            RULES,
        ),
        *(("rules of one kind", f"kernel, {kind} only", 10_000) for kind in ("wildcard", "numeric-range")),
        ("rules of one kind", "kernel, anything-but only", 10_000),
        ("kernel, made to hurt", "ever new strings at wildcards", 1_000),
        ("kernel, made to hurt", "four break points a rule, one path", 10_000),
        ("kernel, made to hurt", "arrays of 10,000 scalars", 1_000),
        ("kernel, made to hurt", "256 conditions a rule", 1_000),
        *(
            ("route as a whole, TEMPLATE for every match", "few matches, in one process", count)
            for count in (1, 10, 100)
        ),
        *(("kernel, where it is slow, or might be", f"{keys} keys, 14 an event", 10_000) for keys in ("100", "5,000")),
        ("kernel, where it is slow, or might be", "regex, ever new strings", 1_000),
        ("kernel, where it is slow, or might be", "arrays inside arrays", 1_000),
        ("kernel, where it is slow, or might be", "an array of 20,000 objects", 1_000),
    }

    assert wanted - rows == set()


def test_a_missed_goal_is_named(work: Workload) -> None:
    """One slow kernel, one large worker: each is MISSED in the table, and repeated with its figure."""
    results = _results(work)
    results.passes[Key("kernel", "mixed", 1, "519")] = [_pass(1.45e6)] * 3
    results.passes[Key("kernel", "mixed", 10, "519")] = [_pass(1e5)] * 3
    results.memory = Memory(90, 100, 150, 512)
    found = sections(work, results)

    printed = _printed(found)
    output = list(summary_lines(found))

    assert printed.count("MISSED") == 4
    part = "mixed rules, events of 519 bytes"
    assert output == [
        "37 of 40 goals met",
        f"  MISSED: {part}: kernel, 1 rules: 1,450,000 events, goal >= 1,500,000",
        f"  MISSED: {part}: kernel, 10 rules: 100,000 events, goal >= 800,000",
        "  MISSED: one worker: its memory after them, 10,000 rules: 512 MB, goal <= 400",
        "9 of 10 floors met",
        f"  MISSED: {part}: kernel, 10 rules: 100,000 events, floor >= 688,500",
    ]


def test_the_exit_code_is_about_responses(work: Workload, capsys: pytest.CaptureFixture[str]) -> None:
    """A missed goal is reported and the code is 0; one response that differs makes it 1."""
    results = _results(work)
    results.memory = Memory(90, 100, 150, 512)
    results.checks.add("kernel and another", 0)
    missed = report(work, results)
    results.checks.add("kernel and a third", 2)
    wrong = report(work, results)

    assert (missed, wrong) == (0, 1)
    output = capsys.readouterr().out
    assert "MISSED: one worker: its memory after them" in output
    assert "kernel and another: the same" in output
    assert "kernel and a third: 2 DIFFER" in output


def test_a_first_look_says_that_it_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """QUICK prints the same parts, and that its passes are too short to judge by."""
    work = Workload(tmp_path, QUICK)

    report(work, _results(work))

    assert "too short to judge" in capsys.readouterr().out


def test_the_time_is_shown_by_part() -> None:
    """Nanoseconds for scan, classify, AND and output, the median over the rounds, and their sum."""
    console = Console(width=120, file=io.StringIO())
    shares = [Shares(100, 50, 20, 4), Shares(300, 60, 20, 4), Shares(200, 40, 30, 4)]

    print_shares("title", {10_000: shares}, console)

    assert console.file.getvalue().split("\n")[-2].split() == ["10,000", "200", "50", "20", "4", "274"]


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ((), "java, javac, mvn. Install: sudo apt-get install -y maven openjdk-17-jdk-headless"),
        (("java", "mvn"), "javac. Install: sudo apt-get install -y openjdk-17-jdk-headless"),
        (("java", "javac"), "mvn. Install: sudo apt-get install -y maven"),
    ],
)
def test_a_missing_tool_is_named_with_its_install_command(
    there: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a JDK or Maven one line says so and how to install both."""
    for name in there:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(BenchError, match="needs a JDK of 17 or later and Maven") as output:
        require_tools()

    assert str(output.value).endswith(said)


def _pass(rate: float) -> Pass:
    return Pass(int(rate), 1.0, int(rate), int(rate) * 519)


def _results(work: Workload) -> Results:
    """Results of three rounds in which every kernel is as fast as `RATES` says."""
    results = Results()
    shared = [
        Key(who, rule_set, count, str(size))
        for who in ("kernel", "event ruler", "udf", "route")
        for rule_set, count in rule_sets(work)
        for size in SIZES
    ]
    for key in (*shared, *hostile_sets(work), *slow_sets(work), *routed_sets()):
        results.passes[key] = [_pass(RATES[key.who])] * 3
    for name in ("compile", "change", "ready", "ready, clock", "forked from"):
        results.seconds[name] = [0.4] * 3
    for count in PROFILED:
        results.shares[count] = [Shares(1, 2, 3, 4)] * 3
    results.memory, results.first_seconds, results.worker = Memory(90, 100, 150, 200), 0.1, _pass(3e5)
    return results


def _rows(found: Sections) -> dict[tuple[str, str, int], Line]:
    return {(part, line.what, line.rules): line for part, lines in found for line in lines}


def _printed(found: Sections) -> str:
    console = Console(width=200, file=io.StringIO())
    print_table("title", found, console)
    text = console.file.getvalue()
    assert isinstance(text, str)
    return text


def test_a_bound_may_be_the_most() -> None:
    """Of what shall be small, a figure above the goal misses it."""
    figures = [Comparison(value, "MB", 400, at_most=True) for value in (399, 400, 401)]

    assert [figure.judged("goal")[1] for figure in figures] == [True, True, False]
    assert Comparison(1, "x").judged("goal") == (None, None)
