"""What every target must do: each test runs against the real ones and the fake. A new target is one more line.

Each type runs as the target of a rule and as the dead letter queue of another one, as rule files write them. `http`
with `batch` is a target only, as a queue has no such field. `queue` has no place here, as nothing is sent to it: see
`ledger_queues_contract`.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import certificates
import pytest
from deltalake import DeltaTable
from demo.receiver import ADDRESSES, Receiver
from demo.s3_server import S3Server
from services.airflow import PASSWORD, USER, AirflowServer
from services.iceberg import sqlite_catalog
from services.kafka import Kafka
from services.kafka import make_topics as make_kafka_topics
from services.rocketmq import RocketMQ
from services.rocketmq import make_topics as make_rocketmq_topics

from eventbridge import fault_points
from eventbridge.clients.rocketmq.remoting.settings import ClientSettings
from eventbridge.clients.s3.access import S3Access
from eventbridge.config.connection import Connection, connections_from_environment
from eventbridge.config.target_locations import TargetLocations
from eventbridge.delivery.per_delivery import RequestFeed
from eventbridge.rules.load import load_rules
from eventbridge.rules.model import queue_of
from eventbridge.sources.kafka.log import KafkaLog
from eventbridge.sources.rocketmq.log import RocketmqLog
from eventbridge.store.s3 import S3Store
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Request, Target
from eventbridge.testing.sources import messages_of
from eventbridge.testing.targets import InMemoryTarget

Clock = Callable[[], datetime]

LOOPBACK = (ip_network(ADDRESSES),)


@dataclass(frozen=True)
class Kit:
    """A kind of target: how to open one with a clock, and how to see which payloads reached it, in any order."""

    open: Callable[[Clock], Target]
    received: Callable[[], list[bytes]]


@dataclass(frozen=True)
class Destination:
    """Where deliveries of a type go: its fields as flow YAML, its connection, and what reached it, in any order."""

    fields: str
    received: Callable[[], list[bytes]]
    connection: Connection | None = None


def now() -> datetime:
    return datetime.now(UTC)


def later(seconds: float = 30.0) -> datetime:
    return now() + timedelta(seconds=seconds)


@dataclass(frozen=True)
class Receivers:
    """A receiver of plain HTTP/1.1, and one of TLS that offers HTTP/2 and has this certificate."""

    plain: Receiver
    secure: Receiver
    certificate: Path


def http(receivers: Receivers) -> Destination:
    path = f"/healthy/{uuid.uuid4()}"
    return Destination(
        f'type: http, url: "{receivers.plain.url(path)}", allow_http: true, max_in_flight: 4',
        lambda: bodies(receivers.plain, path),
    )


def http2(receivers: Receivers) -> Destination:
    """Over TLS and HTTP/2, with a token that its connection gets."""
    receiver, path = receivers.secure, f"/with-token/9999/{uuid.uuid4()}"
    extra = {"ca_certificate": str(receivers.certificate), "token_url": receiver.url("/token/600/secret")}
    return Destination(
        f'type: http, url: "{receiver.url(path)}", connection: there, max_in_flight: 4',
        lambda: bodies(receiver, path),
        Connection("there", "http", receiver.url(""), login=path, password="secret", extra=extra),
    )


def batch_requests(receivers: Receivers) -> Destination:
    """Several deliveries in one request; what arrives are the items of its arrays."""
    path = f"/healthy/{uuid.uuid4()}"
    return Destination(
        f'type: http, url: "{receivers.plain.url(path)}", allow_http: true, max_in_flight: 4, {BATCH}',
        lambda: [item for body in bodies(receivers.plain, path) for item in items_of(body)],
    )


def http2_batch_requests(receivers: Receivers) -> Destination:
    """The same over TLS and HTTP/2."""
    receiver, path = receivers.secure, f"/healthy/{uuid.uuid4()}"
    return Destination(
        f'type: http, url: "{receiver.url(path)}", connection: there, max_in_flight: 4, {BATCH}',
        lambda: [item for body in bodies(receiver, path) for item in items_of(body)],
        Connection("there", "http", receiver.url(""), extra={"ca_certificate": str(receivers.certificate)}),
    )


BATCH = "batch: {count: 5, bytes: 256KiB}"


def bodies(receiver: Receiver, path: str) -> list[bytes]:
    return [seen["body"] for seen in receiver.requests() if seen["path"] == path]


def items_of(array: bytes) -> list[bytes]:
    """Return the items of a JSON array, byte for byte."""
    text, decoder = array.decode(), json.JSONDecoder()
    items, begin = [], 1
    while begin < len(text):
        _, end = decoder.raw_decode(text, begin)
        items.append(text[begin:end].encode())
        begin = end + 1  # behind the comma, or the bracket
    return items


def file(folder: Path) -> Destination:
    path = folder / "made" / "crm.jsonl"
    return Destination(f"type: file, path: {path}", lambda: path.read_bytes().splitlines() if path.exists() else [])


def kafka(broker: Kafka, topic: str) -> Destination:
    def received() -> list[bytes]:
        with closing(KafkaLog({"bootstrap.servers": broker.servers}, [topic], clock=now)) as log:
            blocks = [block for queue, end in log.ends().items() for block in log.read(queue, 0, end)]
            return [message.body or b"" for message in messages_of(blocks)]

    connection = Connection("there", "kafka", broker.servers)
    return Destination(f"type: kafka, connection: there, topic: {topic}", received, connection)


def rocketmq(server: RocketMQ, topic: str) -> Destination:
    def received() -> list[bytes]:
        with closing(RocketmqLog(ClientSettings((server.servers,)), [topic])) as log:
            blocks = [block for queue, end in log.ends().items() for block in log.read(queue, 0, end)]
            return [message.body or b"" for message in messages_of(blocks)]

    connection = Connection("there", "rocketmq", server.servers)
    return Destination(f"type: rocketmq, connection: there, topic: {topic}", received, connection)


def s3(server: S3Server) -> Destination:
    """A prefix of its own in a bucket."""
    prefix = uuid.uuid4().hex
    connection = connections_from_environment({"EVENTBRIDGE_CONN_S3": server.connection})("s3")

    def received() -> list[bytes]:
        store = S3Store("tests", prefix, lambda: S3Access.from_connection(connection))
        return [line for path in store.list("") for line in store.get(path).splitlines()]

    return Destination(f"type: s3, connection: there, bucket: tests, prefix: {prefix}", received, connection)


def delta(folder: Path) -> Destination:
    """A table whose rows are the numbers of payloads."""
    path = folder / "lake" / "numbers"

    def received() -> list[bytes]:
        if not path.exists():
            return []
        numbers = DeltaTable(str(path)).to_pyarrow_table()["n"].to_pylist()
        return [json.dumps({"n": number}).encode() for number in numbers]

    return Destination(f"type: delta, table: {path}, columns: {{n: long}}", received)


def iceberg(folder: Path) -> Destination:
    """A table in a catalog of its own, whose rows are the numbers of payloads."""
    (folder / "lake").mkdir()
    lake = sqlite_catalog(folder / "lake")
    lake.catalog.create_namespace("tests")

    def received() -> list[bytes]:
        rows = lake.rows("tests.crm") if lake.catalog.table_exists("tests.crm") else []
        return [json.dumps({"n": row["n"]}).encode() for row in rows]

    fields = "type: iceberg, connection: there, table: tests.crm, columns: {n: long}"
    return Destination(fields, received, lake.connection)


def sql(folder: Path) -> Destination:
    """A table in SQLite, whose rows are the numbers of payloads."""
    path = folder / "shop.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE numbers (delivery_id text UNIQUE, n integer)")

    def received() -> list[bytes]:
        with closing(sqlite3.connect(path)) as database:
            return [json.dumps({"n": number}).encode() for (number,) in database.execute("SELECT n FROM numbers")]

    return Destination(
        "type: sql, connection: there, table: numbers", received, Connection("there", "sqlite", str(path))
    )


def dag_runs(airflow: AirflowServer, number: int) -> Destination:
    """A DAG of its own, whose runs have the numbers of payloads in their conf."""

    def received() -> list[bytes]:
        return [json.dumps({"n": run["conf"]["n"]}).encode() for run in airflow.runs(f"crm_{number}").values()]

    return Destination(f"{AIRFLOW}, dag_id: crm_{number}", received, login_of(airflow))


def asset_events(airflow: AirflowServer, number: int) -> Destination:
    """An asset of its own, whose events have the numbers of payloads in their extra."""

    def received() -> list[bytes]:
        return [json.dumps({"n": event["extra"]["n"]}).encode() for event in airflow.asset_events(f"crm_{number}")]

    return Destination(f"{AIRFLOW}, asset: crm_{number}", received, login_of(airflow))


AIRFLOW = "type: airflow, allow_http: true, connection: there"


def login_of(airflow: AirflowServer) -> Connection:
    return Connection("there", "http", airflow.url, login=USER, password=PASSWORD)


def in_memory() -> Kit:
    opened: list[InMemoryTarget] = []

    def open_one(clock: Clock) -> Target:
        opened.append(InMemoryTarget(clock=clock))
        return opened[-1]

    return Kit(open_one, lambda: [request.payload for target in opened for request in target.received])


Asked = Callable[[str], Any]
#: Where each kind of target leads, made of the fixtures that it asks for.
DESTINATIONS: dict[str, Callable[[Asked], Destination]] = {
    "http": lambda asked: http(asked("receivers")),
    "http2": lambda asked: http2(asked("receivers")),
    "batch_requests": lambda asked: batch_requests(asked("receivers")),
    "http2 batch_requests": lambda asked: http2_batch_requests(asked("receivers")),
    "file": lambda asked: file(asked("tmp_path")),
    "kafka": lambda asked: kafka(asked("kafka"), next(asked("kafka_topics"))),
    "rocketmq": lambda asked: rocketmq(asked("rocketmq"), next(asked("rocketmq_topics"))),
    "s3": lambda asked: s3(asked("s3_server")),
    "delta": lambda asked: delta(asked("tmp_path")),
    "iceberg": lambda asked: iceberg(asked("tmp_path")),
    "sql": lambda asked: sql(asked("tmp_path")),
    "airflow": lambda asked: dag_runs(asked("airflow"), next(asked("airflow_numbers"))),
    "airflow asset": lambda asked: asset_events(asked("airflow"), next(asked("airflow_numbers"))),
}
#: Those that take objects only, and store their members; their own tests have their values.
OBJECTS_ONLY = {"delta", "iceberg", "sql", "airflow", "airflow asset"}
TARGET, QUEUE = "target", "dead letter queue"
#: Which of them a rule file may write as a dead letter queue.
QUEUES = [name for name in DESTINATIONS if "batch_requests" not in name]


def kit_of(destination: Destination, role: str, folder: Path) -> Kit:
    """Return how to open a target of a rule, or the dead letter queue of one, as a rule file writes it."""
    name, written = "crm", f"{{{destination.fields}}}"
    if role == QUEUE:
        name, written = queue_of("crm"), f"{{type: file, path: {folder}/crm.jsonl, dead_letter_queue: {written}}}"
    (folder / "rules").mkdir()
    (folder / "rules" / "r.yaml").write_text(
        "buses: {b: {source: {type: embedded}}}\n"
        f"rules:\n  r:\n    bus: b\n    pattern: {{}}\n    targets:\n      crm: {written}\n"
    )
    target = load_rules(folder / "rules").rules["r"].destinations[name]

    def connection(asked: str) -> Connection:
        assert destination.connection is not None, f"no connection was given for {asked}"
        return destination.connection

    return Kit(
        lambda clock: open_target("r", target, connection, clock, LOOPBACK, TargetLocations((folder,))),
        destination.received,
    )


@pytest.fixture(scope="module")
def receivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receivers]:
    """Run two receivers for the module."""
    folder = tmp_path_factory.mktemp("receivers")
    own = certificates.self_signed().write(folder / "own.pem")
    with (
        Receiver(folder / "plain.jsonl", whole=True) as plain,
        Receiver(folder / "secure.jsonl", whole=True, certificate=own, http2=True) as secure,
    ):
        yield Receivers(plain, secure, own)


#: So many topics are made at a time: to make one takes as long.
TOPICS = 26


@pytest.fixture(scope="module")
def kafka_topics(kafka: Kafka) -> Iterator[str]:
    """Name empty topics of two partitions, one after the other."""
    return made_at_once(
        lambda names: make_kafka_topics(kafka, *names, partitions=2, **{"max.message.bytes": f"{2 << 20}"})
    )


@pytest.fixture(scope="module")
def rocketmq_topics(rocketmq: RocketMQ) -> Iterator[str]:
    """Name empty topics of two queues, one after the other."""
    return made_at_once(lambda names: make_rocketmq_topics(rocketmq, *names, partitions=2))


#: So many DAGs, each with an asset of its name, are stored as Airflow starts.
_DAGS = 60


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowServer]:
    """Start Airflow's API server for the module."""
    dags = f"""
from airflow.sdk import DAG, Asset
from airflow.providers.standard.operators.empty import EmptyOperator

for number in range({_DAGS}):
    with DAG(f"crm_{{number}}", schedule=None, max_active_runs=10_000, is_paused_upon_creation=False):
        EmptyOperator(task_id="nothing", outlets=[Asset(f"crm_{{number}}")])
"""
    with AirflowServer(tmp_path_factory.mktemp("airflow") / "home", dags) as server:
        yield server


@pytest.fixture(scope="module")
def airflow_numbers() -> Iterator[int]:
    """Number the DAGs without runs, and the assets without events."""
    return iter(range(_DAGS))


def made_at_once(make: Callable[[list[str]], None]) -> Iterator[str]:
    while True:
        names = [f"crm-{uuid.uuid4()}" for _ in range(TOPICS)]
        make(names)
        yield from names


ROLES = [("memory", TARGET), *((name, TARGET) for name in DESTINATIONS), *((name, QUEUE) for name in QUEUES)]


@pytest.fixture(params=ROLES, ids=" as ".join)
def kit(request: pytest.FixtureRequest, tmp_path: Path) -> Kit:
    """Return each kind of target in each role, with nothing delivered to it yet."""
    return _kit(request, tmp_path)


@pytest.fixture(params=[each for each in ROLES if each[0] not in OBJECTS_ONLY], ids=" as ".join)
def verbatim_kit(request: pytest.FixtureRequest, tmp_path: Path) -> Kit:
    """Return each kind of target whose payloads arrive as they are."""
    return _kit(request, tmp_path)


def _kit(request: pytest.FixtureRequest, folder: Path) -> Kit:
    kind, role = request.param
    return in_memory() if kind == "memory" else kit_of(DESTINATIONS[kind](request.getfixturevalue), role, folder)


def requests_of(payloads: Sequence[bytes], first_index: int = 0) -> list[Request]:
    return [
        Request(index, str(uuid.uuid4()), payload, "application/json")
        for index, payload in enumerate(payloads, start=first_index)
    ]


def some(number: int, first_index: int = 0) -> list[Request]:
    return requests_of([json.dumps({"n": n}).encode() for n in range(first_index, first_index + number)], first_index)


def payloads(requests: Sequence[Request]) -> list[bytes]:
    return sorted(request.payload for request in requests)


def test_every_request_gets_one_response_and_arrives_once(kit: Kit) -> None:
    """Each index comes back exactly once, accepted, and each payload is at the target."""
    requests = some(50, first_index=100)
    with closing(kit.open(now)) as target:
        responses = list(target.deliver(requests, later()))
        target.flush()

    assert sorted(index for index, _ in responses) == list(range(100, 150))
    assert all(response.accepted and response.error_class is None for _, response in responses)
    assert payloads(requests) == sorted(kit.received())


def test_payloads_arrive_unchanged(verbatim_kit: Kit) -> None:
    """Unicode, long numbers, escapes and a payload of 1 MiB arrive byte for byte."""
    texts = ['{"a":"ü\\u0000\\ud800"}', '{"n":123456789012345678901234567890.10}', f'"{"x" * 1_048_576}"', "[ 1,  2 ]"]
    requests = requests_of([text.encode() for text in texts])
    with closing(verbatim_kit.open(now)) as target:
        responses = list(target.deliver(requests, later()))

    assert [response.accepted for _, response in responses] == [True] * 4
    assert payloads(requests) == sorted(verbatim_kit.received())


def test_nothing_to_deliver(kit: Kit) -> None:
    """No requests, no responses, and nothing to flush."""
    with closing(kit.open(now)) as target:
        responses = list(target.deliver([], later()))
        target.flush()

    assert responses == []


def test_nothing_is_started_after_until(kit: Kit) -> None:
    """Past `until` nothing is sent, and what was not started has no response."""
    with closing(kit.open(now)) as target:
        responses = list(target.deliver(some(5), later(-1)))

    assert responses == []
    assert kit.received() == []


def test_until_falls_in_the_middle(kit: Kit) -> None:
    """When time runs out, exactly what was started has a response; the rest was never sent."""
    steps = count()
    requests = some(5_000)  # a transaction of a table takes 1,000
    with closing(kit.open(lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=next(steps)))) as target:
        responded = [index for index, _ in target.deliver(requests, datetime(2026, 1, 1, 0, 0, 0, 7_000, tzinfo=UTC))]

    assert 0 < len(responded) < 5_000
    assert len(set(responded)) == len(responded)
    assert set(kit.received()) <= {requests[index].payload for index in responded}


def test_requests_are_taken_only_as_they_are_sent(kit: Kit) -> None:
    """A target that is closed early has not sent what came later."""
    with closing(kit.open(now)) as target:
        with closing(target.deliver(some(5000), later())) as responses:
            next(responses)
        target.flush()

    assert 1 <= len(kit.received()) < 2_000


def test_it_delivers_again_after_it_was_closed_early(kit: Kit) -> None:
    """Closing the generator gives up what is in flight, and leaves the target ready."""
    with closing(kit.open(now)) as target:
        with closing(target.deliver(some(100), later())) as responses:
            next(responses)
        more = some(10, first_index=1000)
        responded = sorted(index for index, _ in target.deliver(more, later()))

    assert responded == list(range(1000, 1010))
    assert set(payloads(more)) <= set(kit.received())


def test_responses_say_when_and_how_long(kit: Kit) -> None:
    """A response's start is by the clock that was passed in, aware; its duration is not negative."""
    moment = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
    with closing(kit.open(lambda: moment)) as target:
        responses = list(target.deliver(some(3), moment + timedelta(seconds=5)))

    assert [response.started_at for _, response in responses] == [moment] * 3
    assert all(response.duration_ms >= 0 for _, response in responses)


def test_a_target_says_how_many_responses_may_wait(kit: Kit) -> None:
    """`flush_every` is a positive number."""
    with closing(kit.open(now)) as target:
        every = target.flush_every

    assert every >= 1


def test_a_withheld_request_is_not_sent(kit: Kit) -> None:
    """A target asks for each request once, when it sends it, and for one more than it gets."""
    asked: list[int] = []

    def may_send(request: Request, _left: int) -> bool:
        asked.append(request.index)
        return len(asked) <= 13

    requests = some(40)
    with closing(kit.open(now)) as target:
        responded = sorted(index for index, _ in target.deliver(RequestFeed(requests, may_send), later()))
        target.flush()

    assert responded == list(range(13))
    assert asked == list(range(14))
    assert sorted(kit.received()) == payloads(requests[:13])


def test_a_target_says_how_many_more_its_last_response_holds_for(kit: Kit) -> None:
    """They come next, one after the other; in the end there are none."""
    more = [0]
    with closing(kit.open(now)) as target:
        more += [target.more_of_response for _ in target.deliver(some(23), later())]

    assert len(more) == 24
    assert all(then == before - 1 for before, then in pairwise(more) if before)
    assert more[-1] == 0


def test_the_fault_seam_surrounds_every_send(kit: Kit) -> None:
    """A process that stops before the first send has sent nothing; one that stops right after it has."""

    class Stopped(Exception):
        pass

    def stop_at(point: str) -> Callable[[str], None]:
        def hook(reached: str) -> None:
            if reached == point:
                raise Stopped

        return hook

    with closing(kit.open(now)) as target:
        fault_points.install(stop_at("target.send"))
        with pytest.raises(Stopped):
            list(target.deliver(some(1), later()))
        before = kit.received()
        fault_points.install(stop_at("target.responded"))
        with pytest.raises(Stopped):
            list(target.deliver(some(1), later()))

    assert before == []
    assert kit.received() == payloads(some(1))


def test_close_may_come_twice(kit: Kit) -> None:
    """Closing a closed target is not an error."""
    target = kit.open(now)
    list(target.deliver(some(1), later()))
    target.close()
    target.close()
