"""What a real S3 server does and moto does not: access rights, and which of many concurrent writers was first.

Only `make test-s3` runs these: they need a server that is fetched.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from demo.s3_server import ACCESS_KEY, SECRET_KEY

from eventbridge.clients.s3.access import S3Access
from eventbridge.clients.s3.upload import PART_BYTES
from eventbridge.config.connection import Connection
from eventbridge.errors import StoreError
from eventbridge.store.s3 import S3Store

BUCKET = os.environ["TEST_S3_BUCKET"]
ACCESS = S3Access.from_connection(Connection.from_text("s3", os.environ["TEST_S3_CONNECTION"]))


def store(**changed: str) -> S3Store:
    """Return an empty store on the server itself, with what is changed of its connection."""
    return S3Store(BUCKET, uuid.uuid4().hex, lambda: replace(ACCESS, **changed), connection_id="s3", attempts=2)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"secret_key": SECRET_KEY + "x"}, "the secret key does not match the access key. Correct"),
        ({"access_key": "AKIA-of-nobody"}, "the access key is unknown there. Correct"),
    ],
    ids=["secret", "access"],
)
def test_wrong_keys_get_nothing_from_s3(changed: dict[str, str], said: str) -> None:
    """Signatures are checked: by either library, each call says which key is wrong, and never the key."""
    asking = store(**changed)
    calls: list[Callable[[], object]] = [
        lambda: asking.put("a/x", b"1"),
        lambda: asking.create("a/x", b"1"),
        lambda: asking.create("a/x", bytes(PART_BYTES + 1)),
        lambda: asking.list("a/"),
        lambda: asking.delete("a/x"),
    ]
    for call in calls:
        with pytest.raises(StoreError, match=said) as reported:
            call()
        assert ACCESS_KEY not in str(reported.value)
        assert SECRET_KEY not in str(reported.value)


@pytest.mark.parametrize("method", ["get", "open", "exists"])
def test_a_look_with_wrong_keys_is_not_a_missing_file_of_s3(method: str) -> None:
    """A HEAD request gets a response without a body; a refusal is reported as one, and not as a missing file."""
    with pytest.raises(StoreError, match="access is denied"):
        getattr(store(secret_key=SECRET_KEY + "x"), method)("a/x")


@pytest.mark.parametrize(("size", "rounds"), [(100, 50), (PART_BYTES + 1, 5)], ids=["one put", "in parts"])
def test_one_of_many_creators_wins_on_s3(size: int, rounds: int) -> None:
    """Eight at one moment, each with connections of its own: one gets True, and its bytes are stored, whole."""
    first = store()
    writers = [S3Store(BUCKET, first._base.rstrip("/"), lambda: ACCESS, connection_id="s3") for _ in range(8)]
    for number in range(rounds):
        start = threading.Barrier(len(writers))
        path = f"a/{number}"

        def create(writer: int, start: threading.Barrier = start, path: str = path) -> bool:
            content = bytes([writer]) * size
            start.wait()
            return writers[writer].create(path, content)

        with ThreadPoolExecutor(len(writers)) as pool:
            won = list(pool.map(create, range(len(writers))))

        assert sum(won) == 1
        assert first.get(path) == bytes([won.index(True)]) * size
