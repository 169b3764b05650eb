"""The S3 store's own promises: the winner of a create, the requests, and how an error is reported."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from itertools import count

import pyarrow as pa
import pytest
from demo.s3_server import ACCESS_KEY, SECRET_KEY, S3Request, S3Server

from eventbridge import fault_points
from eventbridge.clients.s3.access import S3Access
from eventbridge.clients.s3.upload import PART_BYTES
from eventbridge.config.connection import Connection
from eventbridge.errors import StoreError, StoreFileDamaged, StoreFileMissing
from eventbridge.store.parquet import read_rows, write_table
from eventbridge.store.s3 import S3Store

TABLE = pa.table({name: list(range(6_000)) for name in "abcdefgh"})


def store_of(server: S3Server, *, bucket: str = "tests", attempts: int = 6, **extra: str) -> S3Store:
    """Return an empty store on the server."""
    connection = Connection.from_text("s3", server.connection)
    access = S3Access.from_connection(
        Connection(
            "s3", "aws", login=connection.login, password=connection.password, extra={**connection.extra, **extra}
        )
    )
    return S3Store(bucket, uuid.uuid4().hex, lambda: access, connection_id="s3", attempts=attempts)


def every(number: int, code: str) -> Callable[[S3Request], str | None]:
    """Refuse every n-th request."""
    numbers = count(1)
    return lambda request: code if next(numbers) % number == 0 else None


@pytest.fixture
def store(s3_server: S3Server) -> S3Store:
    """An empty store."""
    return store_of(s3_server)


def test_a_small_file_is_one_put(store: S3Store, s3_server: S3Server) -> None:
    """A file that fits one request costs one, whether or not it must be the first."""
    store.put("a/x", bytes(1_000_000))
    store.create("a/y", bytes(1_000_000))

    assert [request.method for request in s3_server.requests] == ["PUT", "PUT"]


def test_wanted_columns_cost_few_requests(store: S3Store, s3_server: S3Server) -> None:
    """A look for the size, one for the footer, one for what is wanted, however many columns and row groups it has."""
    write_table(store, "a/t", TABLE, schema=TABLE.schema)
    s3_server.requests.clear()
    rows = read_rows(store, "a/t", "2000-5999")

    assert rows.num_rows == 4_000
    assert [request.method for request in s3_server.requests] == ["HEAD", "GET", "GET"]


@pytest.mark.parametrize("code", ["SlowDown", "InternalError"])
def test_a_server_that_refuses_now_and_then_is_asked_again(store: S3Store, s3_server: S3Server, code: str) -> None:
    """500 and 503 SlowDown on every fourth request: everything comes to be as if it had not been."""
    s3_server.refuse = every(4, code)
    for number in range(3):
        store.put(f"a/{number}", b"%d" % number)
        assert store.create(f"b/{number}", b"%d" % number)
        assert not store.create(f"b/{number}", b"other")
        assert store.get(f"b/{number}") == b"%d" % number
    store.delete("a/0")

    assert store.list("") == ["a/1", "a/2", "b/0", "b/1", "b/2"]


@pytest.mark.parametrize("count_of_bytes", [1, 100_000])
def test_a_read_that_is_refused_is_tried_again(store: S3Store, s3_server: S3Server, count_of_bytes: int) -> None:
    """Also where fewer bytes are wanted than the text of the error has: pyarrow by itself gives up then."""
    store.put("a/x", bytes(200_000))
    numbers = count(1)
    s3_server.refuse = lambda request: "SlowDown" if request.method == "GET" and next(numbers) <= 2 else None
    with store.open("a/x") as file:
        file.seek(7)

        assert file.read(count_of_bytes) == bytes(count_of_bytes)


def test_waits_before_another_try_are_not_all_the_same(s3_server: S3Server) -> None:
    """Retries are spread by chance: those that were refused together do not come back together."""
    waits = []
    for write in ("put", "create") * 3:
        times: list[float] = []

        def refuse(request: S3Request, times: list[float] = times) -> str | None:
            times.append(time.monotonic())
            return "SlowDown" if len(times) == 1 else None

        s3_server.refuse = refuse
        getattr(store_of(s3_server), write)("a/x", b"")
        waits.append(times[1] - times[0])

    assert max(waits) - min(waits) > 0.05
    assert max(waits) < 5


def test_the_winner_of_a_create_is_not_reported_as_the_loser(store: S3Store, s3_server: S3Server) -> None:
    """The response to a create is lost and the repetition finds its own file: that is to have won."""
    numbers = count(1)
    s3_server.lose_response = lambda request: request.method == "PUT" and next(numbers) == 1

    assert store.create("a/x", b"mine")
    assert not store.create("a/x", b"mine")
    assert store.get("a/x") == b"mine"


@pytest.mark.parametrize("method", ["put", "create"])
def test_a_lost_response_to_the_end_of_an_upload_in_parts(store: S3Store, s3_server: S3Server, method: str) -> None:
    """The upload's end was carried out, its response lost: the repetition finds no upload, but the file."""
    numbers = count(1)
    s3_server.lose_response = lambda request: (
        request.method == "POST" and "uploadId" in request.query and next(numbers) == 1
    )

    assert getattr(store, method)("a/x", bytes(PART_BYTES + 1)) in (True, None)
    assert len(store.get("a/x")) == PART_BYTES + 1


def test_a_conflict_is_tried_again(store: S3Store, s3_server: S3Server) -> None:
    """409 says that the server has not decided yet which writer is first."""
    numbers = count(1)
    s3_server.refuse = lambda request: "ConditionalRequestConflict" if next(numbers) == 1 else None

    assert store.create("a/x", b"1")


@pytest.mark.parametrize("method", ["put", "create"])
def test_a_part_that_fails_leaves_no_file_cut_short(s3_server: S3Server, method: str) -> None:
    """If a part of a large file cannot be sent, nothing has the file's name, and no parts are left."""
    store = store_of(s3_server, attempts=1)
    s3_server.refuse = lambda request: "SlowDown" if "partNumber=2" in request.query else None

    with pytest.raises(StoreError, match="SlowDown"):
        getattr(store, method)("a/x", bytes(2 * PART_BYTES + 1))
    assert store.list("") == []
    assert [request.method for request in s3_server.requests if "uploadId" in request.query][-1] == "DELETE"


def test_a_writer_that_dies_between_two_parts_leaves_no_file(store: S3Store) -> None:
    """Stopped at any part, a large file is not there."""
    large = bytes(2 * PART_BYTES + 1)
    for fatal in range(1, 4):
        numbers = count(1)

        def die(point: str, numbers: count[int] = numbers, fatal: int = fatal) -> None:
            if point == "store.part" and next(numbers) == fatal:
                raise KeyboardInterrupt

        fault_points.install(die)
        with pytest.raises(KeyboardInterrupt):
            store.create("a/x", large)
        fault_points.install(None)

        assert store.list("") == []


def test_encryption_is_asked_for_with_every_write(s3_server: S3Server) -> None:
    """What the connection says of encryption stands in each write: put, create, and the beginning of parts."""
    store = store_of(s3_server, encryption="aws:kms", kms_key_id="key-1")
    store.put("a/x", b"1")
    store.create("a/y", b"1")
    store.create("a/z", bytes(PART_BYTES + 1))

    asked = [
        request.headers.get("HTTP_X_AMZ_SERVER_SIDE_ENCRYPTION_AWS_KMS_KEY_ID")
        for request in s3_server.requests
        if request.is_put and "uploadId" not in request.query
    ]
    assert asked == ["key-1"] * 3


def test_a_listing_is_of_the_prefix_only(store: S3Store, s3_server: S3Server) -> None:
    """The server is asked for what begins with the prefix, after the text given; nothing is sorted out here."""
    for number in range(3):
        store.put(f"a/{number}", b"")
    s3_server.requests.clear()

    assert store.list("a/", "a/0") == ["a/1", "a/2"]
    (request,) = s3_server.requests
    assert request.is_listing
    assert "prefix=" in request.query
    assert "start-after=" in request.query


def test_other_peoples_objects_are_not_seen(store: S3Store) -> None:
    """What lies below the prefix under a name that no file of a store has, as folders that a console makes."""
    store.put("a/x", b"")
    clients = store._clients()
    for key in ("a/", ".hidden", "a/.part"):
        clients.boto.put_object(Bucket="tests", Key=store._base + key, Body=b"")

    assert store.list("") == ["a/x"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("AccessDenied", "access is denied. Give this user s3:ListBucket"),
        ("InvalidAccessKeyId", "the access key is unknown there. Correct"),
        ("SignatureDoesNotMatch", "the secret key does not match the access key. Correct"),
        ("SlowDown", "too many requests"),
        ("InternalError", "an internal error of the server. It was tried several times"),
    ],
)
def test_a_refusal_of_the_server_is_reported_in_one_line(s3_server: S3Server, code: str, said: str) -> None:
    """Bucket, file, place, what it is and what to do; never a key."""
    store = store_of(s3_server, attempts=1)
    s3_server.refuse = lambda request: code
    calls: dict[str, Callable[[], object]] = {
        "write": lambda: store.put("a/x", b"1"),
        "Cannot write": lambda: store.create("a/x", b"1"),
        "list": lambda: store.list("a/x"),
        "delete": lambda: store.delete("a/x"),
    }
    for verb, call in calls.items():
        with pytest.raises(StoreError) as output:
            call()

        text = str(output.value)
        assert f"{verb} 'a/x' in the bucket 'tests' at http://127.0.0.1:" in text
        assert said in text
        assert "\n" not in text
        assert ACCESS_KEY not in text
        assert SECRET_KEY not in text


@pytest.mark.parametrize("call", ["get", "open", "exists"])
def test_a_look_that_is_refused_is_not_a_missing_file(s3_server: S3Server, call: str) -> None:
    """If a server sends 403 or 503 without a body, as it does to HEAD, that is reported and not taken for 404."""
    store = store_of(s3_server, attempts=1)
    for code, said in (("AccessDenied", "access is denied"), ("SlowDown", "too many requests|not available")):
        s3_server.refuse = lambda request, code=code: code

        with pytest.raises(StoreError, match=said) as output:
            getattr(store, call)("a/x")
        assert not isinstance(output.value, StoreFileMissing)


def test_a_fault_while_reading_is_no_damaged_file(s3_server: S3Server) -> None:
    """A server that fails in the middle of a file: trying again helps, so it must not be reported as damage."""
    store = store_of(s3_server, attempts=1)
    write_table(store, "a/t", TABLE, schema=TABLE.schema)
    s3_server.refuse = lambda request: "SlowDown" if request.method == "GET" else None

    with pytest.raises(
        StoreError,
        match=r"Cannot read 'a/t'.*(the service is not available|an internal error of the server|too many requests)",
    ) as output:
        read_rows(store, "a/t", "0-9")
    assert not isinstance(output.value, StoreFileDamaged)


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.put("a/x", b""),
        lambda store: store.create("a/x", b""),
        lambda store: store.get("a/x"),
        lambda store: store.open("a/x"),
        lambda store: store.exists("a/x"),
        lambda store: store.list("a/x"),
        lambda store: store.delete("a/x"),
    ],
    ids=["put", "create", "get", "open", "exists", "list", "delete"],
)
def test_a_bucket_that_is_not_there(s3_server: S3Server, call: Callable[[S3Store], object]) -> None:
    """Every call says that the bucket is missing, those for one file too: it is not the file that is missing."""
    store = store_of(s3_server, bucket="nobodys", attempts=1)

    with pytest.raises(StoreError, match=r"'nobodys'.*the bucket does not exist. Create it.*STORE_URI") as output:
        call(store)
    assert not isinstance(output.value, StoreFileMissing)


def test_a_server_that_is_down() -> None:
    """No server listens: one line with the address and what to do, from either library."""
    access = S3Access(endpoint="http://127.0.0.1:9", access_key="a", secret_key="b")
    store = S3Store("tests", "x", lambda: access, attempts=1)
    for call in (lambda: store.list(""), lambda: store.get("x"), lambda: store.put("x", b"")):
        with pytest.raises(StoreError, match=r"at http://127.0.0.1:9: the server cannot be reached.*Start it, or"):
            call()


def test_a_fork_uses_clients_of_its_own(store: S3Store) -> None:
    """A process that is forked from one that has used a store can use it too."""
    store.put("a/x", b"1")
    pid = os.fork()
    if pid == 0:
        threading.Timer(20, os._exit, (3,)).start()
        store.create("a/y", b"2")
        store.put("a/z", store.get("a/x"))
        os._exit(0)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert store.list("") == ["a/x", "a/y", "a/z"]


def test_a_file_store_imports_no_client_of_s3() -> None:
    """boto3 costs a third of a second: a store in a folder does not pay it."""
    code = (
        "import sys; from eventbridge.runtime.open import open_runtime;"
        "from eventbridge.store.open import open_store;"
        "open_store('file:///tmp/x'); print(sorted({'boto3', 'botocore'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert output.stdout == "[]\n"
