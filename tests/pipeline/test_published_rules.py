"""Rules that one process publishes: every host goes by them, whatever rule files lie there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eventbridge.control.publish_rules import publish_rules
from eventbridge.errors import NotFoundError, StoreError, UserError
from eventbridge.pipeline.ingest.listen import listen
from eventbridge.pipeline.ingest.reload import take_up_rules
from eventbridge.rules import RuleSet
from eventbridge.store import layout, rule_sets
from eventbridge.views.status import status


@pytest.fixture
def runtime(site: Any) -> Any:
    """The runtime of a host that goes by published rules."""
    return site.reopen(rules_from="published")


@pytest.fixture
def elsewhere(site: Any, runtime: Any, tmp_path: Path) -> Any:
    """The runtime of another host, which has an empty folder of rule files, with the same ledger and store."""
    (tmp_path / "nothing").mkdir()
    return site.reopen(rules_from="published", rules_folder=tmp_path / "nothing")


def test_every_host_has_the_published_rules(runtime: Any, elsewhere: Any) -> None:
    """Before that the error says what to run; afterwards a host without rule files plans by them."""
    with pytest.raises(NotFoundError, match="Run `eventbridge rules publish`"):
        elsewhere.rule_set()

    published = publish_rules(runtime, runtime.rule_files())

    assert set(published.changed) == set(runtime.rule_files().rules)
    assert elsewhere.rule_set().rules.keys() == runtime.rule_files().rules.keys()
    assert take_up_rules(elsewhere).rules.hash == runtime.rule_set().hash
    assert status(elsewhere).errors == ()


def test_a_changed_file_waits_to_be_published(site: Any, runtime: Any, order: Callable[..., bytes]) -> None:
    """A batch uses the rules in force; publishing again takes changes up, and removes deleted rules."""
    publish_rules(runtime, runtime.rule_files())
    before = runtime.rule_files()
    some = sorted(before.rules)[0]
    site.publish(order(1))
    site.write_rules(
        "buses: {orders: {source: {type: embedded, topics: [placed], partitions: 2, start_at: earliest}}}\n"
    )

    batch_id = listen(runtime, "orders")

    assert batch_id is not None
    assert some in runtime.rules_of(runtime.ledger.batches.get(batch_id)).rules
    with pytest.raises(UserError, match="Use --empty"):
        publish_rules(runtime, runtime.rule_files())
    assert publish_rules(runtime, runtime.rule_files(), empty=True).removed == tuple(sorted(before.rules))
    assert runtime.rule_set().rules == {}


def test_publishing_again_changes_nothing(runtime: Any) -> None:
    """The same set, or the same files on another host."""
    publish_rules(runtime, runtime.rule_files())
    since = runtime.ledger.rules.in_force().since

    again = publish_rules(runtime, runtime.rule_files())

    assert (again.changed, again.removed) == ((), ())
    assert runtime.ledger.rules.in_force().since == since


@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_publishing_again_restores_a_lost_set(runtime: Any, elsewhere: Any, damage: str) -> None:
    """Hosts without rule files get an error that says so, and continue once it is published again; nothing counts as
    changed.
    """
    publish_rules(runtime, runtime.rule_files())
    path = layout.rule_set(runtime.ledger.rules.in_force().rule_set)
    right = runtime.store.get(path)
    runtime.store.delete(path)
    if damage == "damaged":
        runtime.store.put(path, b"{}")
    rule_sets._read.clear()  # as a new process

    with pytest.raises(StoreError, match="run `eventbridge rules publish`"):
        elsewhere.rule_set()
    again = publish_rules(runtime, runtime.rule_files())

    assert (again.changed, again.removed) == ((), ())
    assert runtime.store.get(path) == right
    assert elsewhere.rule_set().rules.keys() == runtime.rule_files().rules.keys()


def test_hosts_that_go_by_their_files_are_not_published_to(site: Any) -> None:
    """It would have no effect, so it is refused and the setting named."""
    with pytest.raises(UserError, match="Set EVENTBRIDGE_RULES_FROM to published"):
        publish_rules(site.runtime, RuleSet())
