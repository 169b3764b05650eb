"""What a ledger must do with figures: add them in the transaction of commit, fold them, and lose nothing of a sum."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from contracts.ledger_samples import START, after, register, settle, some_ranges

from eventbridge.ledger import Ledger
from eventbridge.model.figure import BUCKETS, Figure, FigureKey

FIGURE = Figure(FigureKey("target", "orders", "late", "crm", "delivered"), 3, 3, 900, 70, 5_000, (0, 3, *[0] * 13))
OTHER = replace(FIGURE, key=replace(FIGURE.key, target="erp"), count=2**40)


class FiguresContract:
    """The part about figures."""

    def test_a_commit_adds_figures_once(self, ledger: Ledger, rival: Ledger) -> None:
        """Whoever commits second adds nothing."""
        register(ledger)
        settle(ledger)
        assert len(FIGURE.buckets) == BUCKETS

        assert ledger.commit_batch("batch-1", "flights", some_ranges(), after(9), "000000", figures=[OTHER, FIGURE])
        assert not rival.commit_batch("batch-1", "flights", some_ranges(), after(9), "000000", figures=[FIGURE])

        assert rival.figures("target") == [FIGURE, OTHER]
        assert rival.figures("bus") == []
        (at,) = {each.at for each in rival.figures_between("target", START - timedelta(hours=1), after(60))}
        assert at == START.replace(second=0, microsecond=0)

    def test_figures_of_one_minute_add_up(self, ledger: Ledger) -> None:
        """Those of two batches with the same key are one row with both sums."""
        settle(ledger)
        ledger.commit_batch("batch-1", "flights", [], after(1), "000000", figures=[FIGURE])
        settle(ledger, "batch-2")
        ledger.commit_batch("batch-2", "flights", [], after(2), "000000", figures=[FIGURE])

        assert ledger.figure_rows("target") == 1
        (sums,) = ledger.figures("target")
        assert (sums.count, sums.cpu, sums.latency, sums.buckets[1]) == (6, 140, 10_000, 6)

    def test_some_rules_are_added_up_by_day_and_outcome(self, ledger: Ledger, rival: Ledger) -> None:
        """Those between two names, over all their targets; names are told some at a time."""
        settle(ledger)
        keys = [replace(FIGURE.key, rule=f"rule-{number}", target=target) for number in range(4) for target in "ab"]
        figures = [replace(FIGURE, key=each) for each in keys]
        ledger.commit_batch("batch-1", "flights", [], after(1), "000000", figures=figures)
        day = START.replace(hour=0, minute=0, second=0, microsecond=0)
        minute = START.replace(second=0, microsecond=0)

        found = rival.figures_by_day(day, after(60), "rule-1", "rule-2")

        assert [(each.at, each.figure.key.rule, each.figure.count) for each in found] == [
            (day, "rule-1", 6),
            (day, "rule-2", 6),
        ]
        assert rival.rules_with_figures(day, after(60), "rule-0", 2) == ["rule-1", "rule-2"]
        assert rival.rules_with_figures(after(60), after(120), "", 2) == []
        assert rival.outcomes_of([minute], {("orders", "rule-3"), ("orders", "rule-9")}) == {("rule-3", "delivered"): 6}

    def test_what_is_old_is_folded(self, ledger: Ledger, rival: Ledger) -> None:
        """A minute into its hour, the hour into its day, the day into what was ever; nothing younger."""
        settle(ledger)
        many = [replace(FIGURE, key=replace(FIGURE.key, rule=f"rule-{number:04d}")) for number in range(1_200)]
        ledger.commit_batch("batch-1", "flights", [], after(1), "000000", figures=many)
        day = START.replace(hour=0, minute=0, second=0, microsecond=0)

        assert ledger.fold_figures("target", "minute", "hour", START.replace(second=0, microsecond=0)) is None
        assert ledger.fold_figures("target", "minute", "hour", after(60)) == 1_200
        assert rival.fold_figures("target", "minute", "hour", after(60)) is None
        assert {each.grain for each in rival.figures_between("target", day, after(60))} == {"hour"}
        assert ledger.fold_figures("target", "hour", "day", after(60)) == 1_200
        assert {(each.grain, each.at) for each in rival.figures_between("target", day, after(60))} == {("day", day)}
        assert ledger.fold_figures("target", "day", "ever", after(60)) == 1_200
        assert rival.figures_between("target", day - timedelta(days=30_000), after(60)) == []
        assert rival.figures("target") == many
