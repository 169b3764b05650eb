"""Files of the index of event ids: what is written is found, whatever the row group, and what is not there is not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from eventbridge.event.ids import claimed_id
from eventbridge.model.storage import IndexedFile
from eventbridge.store.event_index import Index, index_of, look_up, merge_indexes, write_index
from eventbridge.store.open import open_store
from eventbridge.store.parquet import write_table
from eventbridge.store.protocol import Store
from eventbridge.store.schemas import BUFFER

PATH = "index/date=2026-03-01/one.parquet"


def land(store: Store, name: str, *ids: str | None, bodies: tuple[bytes, ...] = ()) -> IndexedFile:
    """Write a buffer file that has messages with these ids, and messages that are no events."""
    every = [*ids, *(None for _ in bodies)]
    times = [0] * len(every)
    columns = {
        "topic": [""] * len(every),
        "broker": [""] * len(every),
        "partition_id": times,
        "offset": times,
        "message_id": [""] * len(every),
        "published_at": times,
        "arrived_at": times,
        "status": ["valid"] * len(ids) + ["malformed"] * len(bodies),
        "reason": [None] * len(every),
        "event_id": every,
        "source": [None] * len(every),
        "type": [None] * len(every),
        "body": [b""] * len(ids) + list(bodies),
    }
    file = IndexedFile(f"batch-{name}", f"buffer/{name}.parquet")
    write_table(store, file.path, pa.table(columns, schema=BUFFER))
    return file


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store in a folder."""
    return open_store(f"file://{tmp_path}/store", lambda name: pytest.fail(name))


def test_an_id_is_found_in_every_file_that_has_it(store: Store) -> None:
    """Over many row groups, and over joined indexes; an unknown id is found nowhere."""
    some = [land(store, f"a{number}", *(f"{number}-{row}" for row in range(9_000))) for number in range(3)]
    twice = land(store, "b", "0-17", "é", bodies=(b'{"id": "claimed"', b"{}"))
    write_index(
        store,
        PATH,
        merge_indexes([index_of(store, [(file, False) for file in some]), index_of(store, [(twice, True)])]),
    )

    assert look_up(store, PATH, "2-8999") == [some[2]]
    assert look_up(store, PATH, "0-17") == [some[0], twice]
    assert [look_up(store, PATH, name) for name in ("é", "claimed")] == [[twice], [twice]]
    assert look_up(store, PATH, "nobody") == []


def test_an_index_of_nothing_finds_nothing(store: Store) -> None:
    """Batches without a message have an index too."""
    index = index_of(store, [])
    write_index(store, PATH, index)

    assert isinstance(index, Index)
    assert look_up(store, PATH, "1") == []


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"id": "a"}', "a"),
        (b'{"id": 7}', None),
        (b'{"x": {"id": "inner"}}', None),
        (b'not json "id" : "torn\\u0031"', "torn1"),
        (b'"id": "\\q"', None),
        (b"\xff", None),
        (b"", None),
    ],
)
def test_a_message_claims_the_id_that_stands_in_it(body: bytes, found: str | None) -> None:
    """Of a JSON object its `id`; of anything else what stands behind the first `"id":`."""
    assert claimed_id(body) == found
