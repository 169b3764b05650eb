"""An erasure removes the data of a person's events from store, ledger and embedded bus, and audits still succeed."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pipeline.delivering import REFUSED, Sending, http
from pipeline.sending.test_compaction import compacted_day, contents
from pipeline.sending.test_retention import NO_RETRY, files, replay_of, sound

from eventbridge.control.consecutive_batches import deliver_replay
from eventbridge.dead_letters.reader import select_dead_letters
from eventbridge.errors import NotFoundError, StoreError, UserError
from eventbridge.model.erasure import ERASED_BODY
from eventbridge.repair.backup import check_backup
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
    """A store that fails at a write or a removal, after a number of them."""

    def __init__(self, store: Store, writes: int) -> None:
        super().__init__(store)
        self.writes = writes

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        """Write a file, or fail."""
        self._count()
        super().put(path, data)

    def create(self, path: str, data: bytes | pa.Buffer) -> bool:
        """Write a file unless it exists, or fail."""
        self._count()
        return super().create(path, data)

    def delete(self, path: str) -> None:
        """Remove a file, or fail."""
        self._count()
        super().delete(path)

    def _count(self) -> None:
        if not self.writes:
            raise StoreError("the disk is gone")
        self.writes -= 1


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
    (record,) = sending.runtime.store.list("erasures/")
    assert done.erasure_id in record
    assert json.loads(sending.runtime.store.get(record))["erased_by"] == OPERATOR
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
    for writes in (0, 1, 2, 3, 4, 2):  # the first is the record; the fifth try rewrites the deliveries
        with pytest.raises(StoreError):
            erase(replace(sending.runtime, store=FailingStore(store, writes)), selection, by=OPERATOR)
        assert sound(sending) == audited

    assert erase(sending.runtime, selection, by=OPERATOR).rows == {"buffer": 1}, "the archive comes last"

    assert files_with(sending, PERSON) == []
    assert sound(sending) == audited


def test_old_pages_that_a_died_erasure_left_in_a_bus_are_dropped_by_the_next(sending: Sending) -> None:
    """One that died after it had replaced the messages, and before it wrote the file again, is completed."""
    document = json.loads(order_of(sending, PERSON, 1))
    document["data"] |= {"note": PERSON * 2_000}  # several pages
    sending.begin(json.dumps(document).encode(), crm="/healthy/crm")
    sending.deliver()
    file = Path(sending.runtime.settings.bus_folder) / "orders.sqlite"
    with closing(sqlite3.connect(file)) as died, died:
        died.execute("PRAGMA secure_delete = OFF")  # as SQLite is built by default, but not everywhere
        died.execute("UPDATE message SET body = ? WHERE instr(body, ?)", (ERASED_BODY, PERSON.encode()))
    assert PERSON.encode() in b"".join(each.read_bytes() for each in file.parent.glob("orders.sqlite*"))

    erase(sending.runtime, ErasureSelection(subject=PERSON), by=OPERATOR)

    assert files_with(sending, PERSON) == []


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


def test_an_event_in_compacted_files_is_erased(sending: Sending) -> None:
    """The files with its rows leave the larger files; all other files keep their bytes."""
    delivered_orders(sending)
    own, *others = compacted_day(sending, batches=2)[::-1]
    planned = erase(sending.runtime, ErasureSelection(subject=PERSON), by=OPERATOR, dry_run=True)
    assert maintain(sending.runtime).compacted
    audited, before = sound(sending), [contents(sending, each) for each in others]

    done = erase(sending.runtime, ErasureSelection(subject=PERSON), by=OPERATOR)

    assert files_with(sending, PERSON) == []
    assert done.rows == planned.rows
    assert sound(sending) == audited
    assert [contents(sending, each) for each in others] == before
    assert files(sending, own) == {"buffer": 1, "dead_letters": 1, "deliveries": 1, "outcomes": 1, "settlements": 1}
    assert not any(files(sending, each) for each in others)
    assert check_backup(sending.runtime).status == "together"


def test_an_erasure_of_compacted_files_that_died_is_completed(sending: Sending) -> None:
    """Whichever write or removal fails, the audit holds, and the same command completes the erasure."""
    delivered_orders(sending)
    compacted_day(sending, batches=1)
    assert maintain(sending.runtime).compacted
    audited, store, selection = sound(sending), sending.runtime.store, ErasureSelection(subject=PERSON)

    tries = 0
    for writes in count():
        try:
            erase(replace(sending.runtime, store=FailingStore(store, writes)), selection, by=OPERATOR)
            break
        except StoreError:
            tries += 1
        except NotFoundError:
            break
        assert sound(sending) == audited

    assert tries > 3
    assert files_with(sending, PERSON) == []
    assert sound(sending) == audited


def test_nothing_is_erased_during_a_compaction(sending: Sending) -> None:
    """A compaction could copy the data that is erased. One that died goes on first."""
    delivered_orders(sending)
    retention = sending.runtime.ledger.retention
    through = sending.runtime.ledger.now()
    assert retention.begin_compaction(through)

    with pytest.raises(UserError, match=r"a day is being compacted: nothing was erased"):
        erase(sending.runtime, ErasureSelection(subject=PERSON), by=OPERATOR)
    retention.move_sweep("compacted", through)

    assert erase(sending.runtime, ErasureSelection(subject=PERSON), by=OPERATOR).events == 1


def test_nothing_is_compacted_during_an_erasure(sending: Sending) -> None:
    """A compaction waits for an erasure, also for one that died, and for no longer."""
    delivered_orders(sending)
    compacted_day(sending, batches=1)
    assert sending.runtime.ledger.retention.begin_erasure(sending.runtime.ledger.now())
    assert maintain(sending.runtime).compacted == 0

    erase(sending.runtime, ErasureSelection(subject=PERSON), by=OPERATOR)

    assert maintain(sending.runtime).compacted > 0
    assert files_with(sending, PERSON) == []
