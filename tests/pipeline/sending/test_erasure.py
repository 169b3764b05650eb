"""An erasure removes the data of a person's events from store, ledger and embedded bus, and audits still succeed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pipeline.delivering import REFUSED, Sending, http
from pipeline.sending.test_compaction import compacted_day
from pipeline.sending.test_retention import NO_RETRY, replay_of, sound

from eventbridge.control.consecutive_batches import deliver_replay
from eventbridge.dead_letters.reader import select_dead_letters
from eventbridge.errors import NotFoundError, StoreError, UserError
from eventbridge.routing.task import InProcessRouter
from eventbridge.store.compacted import CompactedStore
from eventbridge.store.protocol import Store
from eventbridge.upkeep.erasure import ErasureSelection, erase
from eventbridge.upkeep.maintain import maintain

PERSON = "maria-7f3a"
RETRIED = "{policy: custom, max_retries: 50, initial_delay: 1h, multiplier: 1, max_delay: 1h, maximum_event_age: 20d}"

#: Who erases.
OPERATOR = "command, ann@host"


def order_of(sending: Sending, person: str, number: int) -> bytes:
    """Return an order of a person, whose name is in its id, its subject and its data."""
    document = json.loads(sending.order(number))
    document |= {"id": f"{person}-{number}", "subject": person}
    document["data"] |= {"buyer": person}
    return json.dumps(document).encode()


class FailingStore(CompactedStore):
    """A store that fails at a write, after a number of writes."""

    def __init__(self, store: Store, writes: int) -> None:
        super().__init__(store)
        self.writes = writes

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        """Write a file, or fail."""
        if not self.writes:
            raise StoreError("the disk is gone")
        self.writes -= 1
        super().put(path, data)


def files_with(sending: Sending, text: str) -> list[str]:
    """Return the files of the store, and those of the ledger and the buses, that have a text in clear.

    Parquet files are compressed, so their values are searched too.
    """
    store = sending.runtime.store
    found = []
    for path in store.list(""):
        data = store.get(path)
        if path.endswith(".parquet"):
            with store.open(path) as source:
                data += repr(pq.read_table(source).to_pylist()).encode()
        if text.encode() in data:
            found.append(path)
    settings = sending.runtime.settings
    ledger = Path(settings.ledger_url.removeprefix("sqlite:///"))
    for file in [*ledger.parent.glob(f"{ledger.name}*"), *Path(settings.bus_folder).rglob("*")]:
        if file.is_file() and text.encode() in file.read_bytes():
            found.append(file.name)
    return found


def delivered_orders(sending: Sending, **targets: str) -> None:
    """Deliver an order of the person and one of somebody else."""
    chosen = targets or {"crm": "/healthy/crm", "dead": http(REFUSED, retry=NO_RETRY)}
    sending.begin(order_of(sending, PERSON, 1), order_of(sending, "other-person", 2), **chosen)
    sending.deliver()


@pytest.mark.parametrize("selection", [ErasureSelection(subject=PERSON), ErasureSelection(event_id=f"{PERSON}-1")])
def test_no_byte_of_an_erased_event_is_left(sending: Sending, selection: ErasureSelection) -> None:
    """No file of store, ledger and bus has the person; the audit counts as before; other events keep their data."""
    delivered_orders(sending)
    audited = sound(sending)
    assert files_with(sending, PERSON), "the person is in the files before"

    done = erase(sending.runtime, selection, by=OPERATOR)

    assert files_with(sending, PERSON) == []
    assert files_with(sending, "other-person")
    assert sound(sending) == audited
    assert (done.events, done.messages, done.targets) == (1, {"orders": 1}, ("orders/crm", "orders/dead"))
    (tombstone,) = sending.runtime.store.list("erasures/")
    assert done.erasure_id in tombstone
    assert json.loads(sending.runtime.store.get(tombstone))["erased_by"] == OPERATOR
    assert [(each.by, json.loads(each.asked)) for each in sending.runtime.ledger.actions.find(1)] == [
        (OPERATOR, {"erasure_id": done.erasure_id})
    ]
    with pytest.raises(NotFoundError):
        erase(sending.runtime, selection, by=OPERATOR)


def test_replay_and_dead_letters_no_longer_have_an_erased_event(sending: Sending) -> None:
    """A replay takes only the other event, and only its dead letter is listed."""
    delivered_orders(sending)
    erase(sending.runtime, ErasureSelection(subject=PERSON), by=OPERATOR)

    assert [each.record["event_id"] for each in select_dead_letters(sending.runtime)] == ["other-person-2"]
    deliver_replay(sending.runtime, replay_of(sending), InProcessRouter(sending.runtime.store))

    assert sound(sending).events["from_archive"] == 1


def test_an_erasure_that_died_is_completed(sending: Sending) -> None:
    """Whichever write of the store fails, the audit holds, and the same command completes the erasure."""
    delivered_orders(sending)
    audited = sound(sending)
    selection, store = ErasureSelection(subject=PERSON), sending.runtime.store
    for writes in (0, 1, 2, 3, 4, 2):  # the first is the tombstone; the fifth try rewrites the deliveries
        with pytest.raises(StoreError):
            erase(replace(sending.runtime, store=FailingStore(store, writes)), selection, by=OPERATOR)
        assert sound(sending) == audited

    assert erase(sending.runtime, selection, by=OPERATOR).rows == {"buffer": 1}, "the archive comes last"

    assert files_with(sending, PERSON) == []
    assert sound(sending) == audited


def test_a_dry_run_changes_nothing(sending: Sending) -> None:
    """A dry run reports the same rows as the erasure, and every file stays as it is."""
    delivered_orders(sending)
    before = {path: sending.runtime.store.get(path) for path in sending.runtime.store.list("")}

    planned = erase(sending.runtime, ErasureSelection(subject=PERSON), by=OPERATOR, dry_run=True)

    assert {path: sending.runtime.store.get(path) for path in sending.runtime.store.list("")} == before
    assert erase(sending.runtime, ErasureSelection(subject=PERSON), by=OPERATOR).rows == planned.rows


def test_a_pending_delivery_refuses_the_erasure(sending: Sending) -> None:
    """An event that waits for a retry is refused, and keeps its data."""
    delivered_orders(sending, crm=http(REFUSED, retry=RETRIED))

    with pytest.raises(UserError, match=r"still to be delivered, for the rule orders: nothing was erased"):
        erase(sending.runtime, ErasureSelection(subject=PERSON), by=OPERATOR)

    assert files_with(sending, PERSON)


def test_an_event_that_no_runner_has_taken_refuses_the_erasure(sending: Sending) -> None:
    """A message of an embedded bus that a runner still has to read is refused."""
    delivered_orders(sending)
    sending.publish(order_of(sending, PERSON, 3))

    with pytest.raises(UserError, match=r"the runner orders has not yet delivered"):
        erase(sending.runtime, ErasureSelection(subject=PERSON), by=OPERATOR)


def test_an_event_of_a_runner_that_never_ran_refuses_the_erasure(sending: Sending) -> None:
    """A message for a runner of the rules that has no offsets yet is refused, so that no event is lost unseen."""
    sending.begin(order_of(sending, PERSON, 1), crm="/healthy/crm")

    with pytest.raises(UserError, match=r"the runner orders has not yet delivered"):
        erase(sending.runtime, ErasureSelection(subject=PERSON), by=OPERATOR)


def test_a_compacted_file_refuses_the_erasure(sending: Sending) -> None:
    """An event in a compacted file is refused, and nothing is changed."""
    delivered_orders(sending)
    compacted_day(sending, batches=1)
    maintain(sending.runtime)

    with pytest.raises(UserError, match=r"is compacted: nothing was erased"):
        erase(sending.runtime, ErasureSelection(subject=PERSON), by=OPERATOR)
