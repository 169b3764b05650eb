"""What a ledger must do with stats: add them in the transaction of commit, fold them, and lose nothing of a sum."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from contracts.ledger_samples import START, after, register, settle, some_ranges
from stored import sums_ever

from eventbridge.ledger import Ledger
from eventbridge.model.stat import BUCKETS, Stat, StatKey

STAT = Stat(StatKey("target", "orders", "late", "crm", "delivered"), 3, 3, 900, 70, 5_000, (0, 3, *[0] * 13))
OTHER = replace(STAT, key=replace(STAT.key, target="erp"), count=2**40)


class StatsContract:
    """The part about stats."""

    def test_a_commit_adds_stats_once(self, ledger: Ledger, rival: Ledger) -> None:
        """The second commit adds nothing."""
        register(ledger)
        settle(ledger)
        assert len(STAT.buckets) == BUCKETS

        assert ledger.settlement.commit("batch-1", "flights", some_ranges(), after(9), "000000", stats=[OTHER, STAT])
        assert not rival.settlement.commit("batch-1", "flights", some_ranges(), after(9), "000000", stats=[STAT])

        assert sums_ever(rival, "target") == [STAT, OTHER]
        assert sums_ever(rival, "bus") == []
        (at,) = {each.at for each in rival.stats.list_between("target", START - timedelta(hours=1), after(60))}
        assert at == START.replace(second=0, microsecond=0)

    def test_stats_of_one_minute_add_up(self, ledger: Ledger) -> None:
        """Those of two batches with the same key are one row with both sums."""
        settle(ledger)
        ledger.settlement.commit("batch-1", "flights", [], after(1), "000000", stats=[STAT])
        settle(ledger, "batch-2")
        ledger.settlement.commit("batch-2", "flights", [], after(2), "000000", stats=[STAT])

        assert ledger.stats.row_count("target") == 1
        (sums,) = sums_ever(ledger, "target")
        assert (sums.count, sums.cpu, sums.latency, sums.buckets[1]) == (6, 140, 10_000, 6)

    def test_some_rules_are_added_up_by_day_and_outcome(self, ledger: Ledger, rival: Ledger) -> None:
        """Those between two names, over all their targets; names are returned page by page."""
        settle(ledger)
        keys = [replace(STAT.key, rule=f"rule-{number}", target=target) for number in range(4) for target in "ab"]
        stats = [replace(STAT, key=each) for each in keys]
        ledger.settlement.commit("batch-1", "flights", [], after(1), "000000", stats=stats)
        day = START.replace(hour=0, minute=0, second=0, microsecond=0)
        minute = START.replace(second=0, microsecond=0)

        found = rival.stats.list_by_day(day, after(60), "rule-1", "rule-2")

        assert [(each.at, each.stat.key.rule, each.stat.count) for each in found] == [
            (day, "rule-1", 6),
            (day, "rule-2", 6),
        ]
        assert rival.stats.rules_with_stats(day, after(60), "rule-0", 2) == ["rule-1", "rule-2"]
        assert rival.stats.rules_with_stats(after(60), after(120), "", 2) == []
        hour = rival.stats.outcomes([minute], {("orders", "rule-3"), ("orders", "rule-9")})
        assert sorted((each.key.rule, each.key.target, each.count, each.buckets[1]) for each in hour) == [
            ("rule-3", "a", 3, 3),
            ("rule-3", "b", 3, 3),
        ]

    def test_old_stats_are_folded(self, ledger: Ledger, rival: Ledger) -> None:
        """A minute into its hour, the hour into its day, the day into what was ever; nothing younger."""
        settle(ledger)
        many = [replace(STAT, key=replace(STAT.key, rule=f"rule-{number:04d}")) for number in range(1_200)]
        ledger.settlement.commit("batch-1", "flights", [], after(1), "000000", stats=many)
        day = START.replace(hour=0, minute=0, second=0, microsecond=0)

        assert ledger.stats.fold("target", "minute", "hour", START.replace(second=0, microsecond=0)) is None
        assert ledger.stats.fold("target", "minute", "hour", after(60)) == 1_200
        assert rival.stats.fold("target", "minute", "hour", after(60)) is None
        assert {each.grain for each in rival.stats.list_between("target", day, after(60))} == {"hour"}
        assert ledger.stats.fold("target", "hour", "day", after(60)) == 1_200
        assert {(each.grain, each.at) for each in rival.stats.list_between("target", day, after(60))} == {("day", day)}
        assert ledger.stats.fold("target", "day", "ever", after(60)) == 1_200
        assert rival.stats.list_between("target", day - timedelta(days=30_000), after(60)) == []
        assert sums_ever(rival, "target") == many
