"""Every host uses the rules that one process publishes, whatever rule files the host has."""

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
    """The runtime of a host that uses published rules."""
    return site.reopen(rules_from="published")


@pytest.fixture
def elsewhere(site: Any, runtime: Any, tmp_path: Path) -> Any:
    """The runtime of another host, which has an empty folder of rule files, with the same ledger and store."""
    (tmp_path / "nothing").mkdir()
    return site.reopen(rules_from="published", rules_folder=tmp_path / "nothing")


def test_every_host_has_the_published_rules(runtime: Any, elsewhere: Any) -> None:
    """Before rules are published, the error names the command; afterwards a host without rule files uses them."""
    with pytest.raises(NotFoundError, match="Run `eventbridge rules publish`"):
        elsewhere.rule_set()

    published = publish_rules(runtime, runtime.rule_files())

    assert set(published.changed) == set(runtime.rule_files().rules)
    assert elsewhere.rule_set().rules.keys() == runtime.rule_files().rules.keys()
    assert take_up_rules(elsewhere).rules.hash == runtime.rule_set().hash
    assert status(elsewhere).errors == ()


def test_a_changed_file_waits_to_be_published(site: Any, runtime: Any, order: Callable[..., bytes]) -> None:
    """A batch uses the published rules until publishing again changes or removes rules."""
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
    """Publishing the same rule set, or the same files on another host, changes nothing."""
    publish_rules(runtime, runtime.rule_files())
    since = runtime.ledger.rules.get_in_force().since

    again = publish_rules(runtime, runtime.rule_files())

    assert (again.changed, again.removed) == ((), ())
    assert runtime.ledger.rules.get_in_force().since == since


@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_publishing_again_restores_a_lost_set(runtime: Any, elsewhere: Any, damage: str) -> None:
    """Hosts without rule files report a lost rule set, and continue once it is published again, unchanged."""
    publish_rules(runtime, runtime.rule_files())
    path = layout.rule_set(runtime.ledger.rules.get_in_force().rule_set)
    right = runtime.store.get(path)
    runtime.store.delete(path)
    if damage == "damaged":
        runtime.store.put(path, b"{}")
    rule_sets._read.clear()  # as in a new process

    with pytest.raises(StoreError, match="run `eventbridge rules publish`"):
        elsewhere.rule_set()
    again = publish_rules(runtime, runtime.rule_files())

    assert (again.changed, again.removed) == ((), ())
    assert runtime.store.get(path) == right
    assert elsewhere.rule_set().rules.keys() == runtime.rule_files().rules.keys()


def test_hosts_that_go_by_their_files_are_not_published_to(site: Any) -> None:
    """Publishing to hosts that use their own files is rejected with the name of the setting."""
    with pytest.raises(UserError, match="Set EVENTBRIDGE_RULES_FROM to published"):
        publish_rules(site.runtime, RuleSet())
