"""A lost or damaged frozen rule set is written again if the current rules are the same."""

from __future__ import annotations

import pytest
from pipeline.delivering import Sending

from eventbridge.errors import StoreFileDamaged
from eventbridge.repair.audit import audit
from eventbridge.store import layout, rule_sets


@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_it_is_written_again_from_the_rule_files(sending: Sending, damage: str) -> None:
    """The batch that is pinned to it continues, and the file is what it was."""
    runtime = sending.begin(3, crm="/healthy/crm")
    sending.deliver()
    path = layout.rule_set(runtime.ledger.batches.find(limit=1)[0].rule_set)
    right = runtime.store.get(path)
    sending.publish(2)
    runtime.store.delete(path)
    if damage == "damaged":
        runtime.store.put(path, right[:-9])
    rule_sets._read.clear()  # as a new process

    sending.deliver()

    assert len(sending.requests()) == 5
    assert runtime.store.get(path) == right
    assert audit(runtime).differences == ()


def test_where_the_rules_are_others_now_it_is_reported(sending: Sending) -> None:
    """The error says how it can be written again: the file is not replaced by other rules."""
    batch = sending.routed(3, crm="/healthy/crm")
    path = layout.rule_set(batch.rule_set)
    sending.runtime.store.put(path, b"{}")
    sending.rules(crm="/healthy/other")
    rule_sets._read.clear()  # as a new process

    with pytest.raises(StoreFileDamaged, match=rf"rule files of the time when batch {batch.batch_id}"):
        sending.runtime.rules_of(batch)

    assert sending.runtime.store.get(path) == b"{}"


@pytest.mark.parametrize("damage", ["gone", "damaged"])
def test_other_rules_take_effect_without_it(sending: Sending, damage: str) -> None:
    """The rules in force are lost, and the files have changed since: the next batch goes by the changed ones."""
    runtime = sending.begin(3, crm="/healthy/crm", note="/healthy/note")
    sending.deliver()
    path = layout.rule_set(runtime.ledger.rules.get_in_force().rule_set)
    runtime.store.delete(path)
    if damage == "damaged":
        runtime.store.put(path, b"{}")
    rule_sets._read.clear()  # as a new process
    sending.rules(crm="/healthy/changed")
    sending.publish(2)

    sending.deliver()

    assert [each["path"] for each in sending.requests()].count("/healthy/changed") == 2
    newest, oldest = runtime.ledger.rules.changes()
    assert newest.rule == oldest.rule == "orders"
    assert newest.version != oldest.version
