"""What every target must do: each test runs against the real ones and the fake. A new target is one more line."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from itertools import count, pairwise
from pathlib import Path

import certificates
import pytest
from services.kafka import Kafka, make_topics
from services.rocketmq import RocketMQ
from services.rocketmq import make_topics as make_rocketmq_topics

from eventbridge import fault_points
from eventbridge.config.connection import Connection, connections_from_environment
from eventbridge.rocketmq.remoting.settings import ClientSettings
from eventbridge.s3.access import S3Access
from eventbridge.sources.kafka.log import KafkaLog
from eventbridge.sources.rocketmq.log import RocketmqLog
from eventbridge.stages.push.admission_gate import Feed
from eventbridge.store.s3 import S3Store
from eventbridge.targets.file.fields import FileFields
from eventbridge.targets.http_batch import Batching
from eventbridge.targets.http_fields import HttpFields
from eventbridge.targets.kafka.fields import KafkaFields
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Request, Target
from eventbridge.targets.rocketmq.fields import RocketmqFields
from eventbridge.targets.s3.fields import S3Fields
from eventbridge.testing.messages import messages_of
from eventbridge.testing.receiver import ADDRESSES, Receiver
from eventbridge.testing.s3 import S3Server
from eventbridge.testing.targets import InMemoryTarget

Clock = Callable[[], datetime]

LOOPBACK = (ip_network(ADDRESSES),)


@dataclass(frozen=True)
class Kit:
    """A kind of target: how to open one with a clock, and how to see which payloads reached it, in any order."""

    open: Callable[[Clock], Target]
    received: Callable[[], list[bytes]]


def now() -> datetime:
    return datetime.now(UTC)


def later(seconds: float = 30.0) -> datetime:
    return now() + timedelta(seconds=seconds)


def no_connection(connection_id: str) -> None:
    raise AssertionError(f"nobody asked for {connection_id}")


@dataclass(frozen=True)
class Receivers:
    """A receiver of plain HTTP/1.1, and one of TLS that offers HTTP/2 and has this certificate."""

    plain: Receiver
    secure: Receiver
    certificate: Path


def http_kit(folder: Path, receivers: Receivers) -> Kit:
    receiver, path = receivers.plain, f"/healthy/{uuid.uuid4()}"
    rule = HttpFields(name="crm", url=receiver.url(path), allow_http=True, max_in_flight=4)
    return Kit(
        lambda clock: open_target("r", rule, no_connection, clock, LOOPBACK),  # type: ignore[arg-type]
        lambda: [seen["body"] for seen in receiver.requests() if seen["path"] == path],
    )


def http2_kit(folder: Path, receivers: Receivers) -> Kit:
    """Over TLS and HTTP/2, with a token that its connection gets."""
    receiver, path = receivers.secure, f"/with-token/9999/{uuid.uuid4()}"
    extra = {"ca_certificate": str(receivers.certificate), "token_url": receiver.url("/token/600/secret")}
    connection = Connection("crm", "http", login=path, password="secret", extra=extra)
    rule = HttpFields(name="crm", url=receiver.url(path), connection="crm", max_in_flight=4)
    return Kit(
        lambda clock: open_target("r", rule, lambda _: connection, clock, LOOPBACK),
        lambda: [seen["body"] for seen in receiver.requests() if seen["path"] == path],
    )


def bundle_kit(folder: Path, receivers: Receivers) -> Kit:
    """Several deliveries in one request; what arrives are the items of its arrays."""
    receiver, path = receivers.plain, f"/healthy/{uuid.uuid4()}"
    batch = Batching(count=5, size_bytes=1 << 18)
    rule = HttpFields(name="crm", url=receiver.url(path), allow_http=True, max_in_flight=4, batch=batch)
    return Kit(
        lambda clock: open_target("r", rule, no_connection, clock, LOOPBACK),  # type: ignore[arg-type]
        lambda: [item for seen in receiver.requests() if seen["path"] == path for item in items_of(seen["body"])],
    )


def http2_bundle_kit(folder: Path, receivers: Receivers) -> Kit:
    """The same over TLS and HTTP/2."""
    receiver, path = receivers.secure, f"/healthy/{uuid.uuid4()}"
    connection = Connection("crm", "http", extra={"ca_certificate": str(receivers.certificate)})
    batch = Batching(count=5, size_bytes=1 << 18)
    rule = HttpFields(name="crm", url=receiver.url(path), connection="crm", max_in_flight=4, batch=batch)
    return Kit(
        lambda clock: open_target("r", rule, lambda _: connection, clock, LOOPBACK),
        lambda: [item for seen in receiver.requests() if seen["path"] == path for item in items_of(seen["body"])],
    )


def items_of(array: bytes) -> list[bytes]:
    """Return the items of a JSON array, byte for byte."""
    text, decoder = array.decode(), json.JSONDecoder()
    items, place = [], 1
    while place < len(text):
        _, end = decoder.raw_decode(text, place)
        items.append(text[place:end].encode())
        place = end + 1  # behind the comma, or the bracket
    return items


def file_kit(folder: Path, receivers: Receivers) -> Kit:
    path = folder / "made" / "crm.jsonl"
    rule = FileFields(name="crm", path=str(path))
    return Kit(
        lambda clock: open_target("r", rule, no_connection, clock, LOOPBACK),  # type: ignore[arg-type]
        lambda: path.read_bytes().splitlines() if path.exists() else [],
    )


def kafka_kit(broker: Kafka) -> Kit:
    """A topic of two partitions that was made just now."""
    make_topics(broker, "crm", queues=2, **{"max.message.bytes": str(2 << 20)})
    rule = KafkaFields(name="crm", connection="shop", topic="crm", max_in_flight=500)
    connection = Connection("shop", "kafka", broker.servers)

    def received() -> list[bytes]:
        with closing(KafkaLog({"bootstrap.servers": broker.servers}, ["crm"], clock=now)) as log:
            blocks = [block for queue, end in log.ends().items() for block in log.read(queue, 0, end)]
            return [message.body or b"" for message in messages_of(blocks)]

    return Kit(lambda clock: open_target("r", rule, lambda _: connection, clock), received)


def rocketmq_kit(server: RocketMQ) -> Kit:
    """A topic of two queues that was made just now."""
    make_rocketmq_topics(server, "crm", queues=2)
    rule = RocketmqFields(name="crm", connection="shop", topic="crm", max_in_flight=100)
    connection = Connection("shop", "rocketmq", server.servers)

    def received() -> list[bytes]:
        with closing(RocketmqLog(ClientSettings((server.servers,)), ["crm"])) as log:
            blocks = [block for queue, end in log.ends().items() for block in log.read(queue, 0, end)]
            return [message.body or b"" for message in messages_of(blocks)]

    return Kit(lambda clock: open_target("r", rule, lambda _: connection, clock), received)


def s3_kit(server: S3Server) -> Kit:
    """A prefix of its own in a bucket."""
    prefix = uuid.uuid4().hex
    rule = S3Fields(name="crm", connection="s3", bucket="tests", prefix=prefix)
    connection = connections_from_environment({"EVENTBRIDGE_CONN_S3": server.connection})("s3")

    def received() -> list[bytes]:
        store = S3Store("tests", prefix, lambda: S3Access.from_connection(connection))
        return [line for path in store.list("") for line in store.get(path).splitlines()]

    return Kit(lambda clock: open_target("r", rule, lambda _: connection, clock), received)


def memory_kit(folder: Path, receivers: Receivers) -> Kit:
    opened: list[InMemoryTarget] = []

    def open_one(clock: Clock) -> Target:
        opened.append(InMemoryTarget(clock=clock))
        return opened[-1]

    return Kit(open_one, lambda: [request.payload for target in opened for request in target.received])


KITS = {
    "http": http_kit,
    "http2": http2_kit,
    "bundles": bundle_kit,
    "http2 bundles": http2_bundle_kit,
    "file": file_kit,
    "memory": memory_kit,
}


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


@pytest.fixture(params=[*KITS, "kafka", "rocketmq", "s3"])
def kit(request: pytest.FixtureRequest, tmp_path: Path, receivers: Receivers) -> Kit:
    """Return each kind of target, with nothing delivered to it yet."""
    if request.param == "kafka":
        return kafka_kit(request.getfixturevalue("kafka"))
    if request.param == "rocketmq":
        return rocketmq_kit(request.getfixturevalue("rocketmq"))
    if request.param == "s3":
        return s3_kit(request.getfixturevalue("s3_server"))
    return KITS[request.param](tmp_path, receivers)


def requests_of(payloads: Sequence[bytes], first_index: int = 0) -> list[Request]:
    return [
        Request(index, str(uuid.uuid4()), payload, "application/json")
        for index, payload in enumerate(payloads, start=first_index)
    ]


def some(number: int, first_index: int = 0) -> list[Request]:
    return requests_of([json.dumps({"n": n}).encode() for n in range(first_index, first_index + number)], first_index)


def payloads(requests: Sequence[Request]) -> list[bytes]:
    return sorted(request.payload for request in requests)


def test_every_request_is_answered_once_and_arrives_once(kit: Kit) -> None:
    """Each index comes back exactly once, accepted, and each payload is at the target."""
    requests = some(50, first_index=100)
    with closing(kit.open(now)) as target:
        answers = list(target.deliver(requests, later()))
        target.flush()

    assert sorted(index for index, _ in answers) == list(range(100, 150))
    assert all(answer.accepted and answer.error_class is None for _, answer in answers)
    assert payloads(requests) == sorted(kit.received())


def test_payloads_arrive_unchanged(kit: Kit) -> None:
    """Unicode, long numbers, escapes and a payload of 1 MiB arrive byte for byte."""
    texts = ['{"a":"ü\\u0000\\ud800"}', '{"n":123456789012345678901234567890.10}', f'"{"x" * 1_048_576}"', "[ 1,  2 ]"]
    requests = requests_of([text.encode() for text in texts])
    with closing(kit.open(now)) as target:
        answers = list(target.deliver(requests, later()))

    assert [answer.accepted for _, answer in answers] == [True] * 4
    assert payloads(requests) == sorted(kit.received())


def test_nothing_to_deliver(kit: Kit) -> None:
    """No requests, no answers, and nothing to flush."""
    with closing(kit.open(now)) as target:
        answers = list(target.deliver([], later()))
        target.flush()

    assert answers == []


def test_nothing_is_started_after_until(kit: Kit) -> None:
    """Past `until` nothing is sent, and what was not started has no answer."""
    with closing(kit.open(now)) as target:
        answers = list(target.deliver(some(5), later(-1)))

    assert answers == []
    assert kit.received() == []


def test_until_falls_in_the_middle(kit: Kit) -> None:
    """When time runs out, exactly what was started has an answer; the rest was never sent."""
    steps = count()
    requests = some(1000)
    with closing(kit.open(lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=next(steps)))) as target:
        answered = [index for index, _ in target.deliver(requests, datetime(2026, 1, 1, 0, 0, 0, 7_000, tzinfo=UTC))]

    assert 0 < len(answered) < 1000
    assert len(set(answered)) == len(answered)
    assert set(kit.received()) <= {requests[index].payload for index in answered}


def test_requests_are_taken_only_as_they_are_sent(kit: Kit) -> None:
    """A target that is closed early has not sent what came later."""
    with closing(kit.open(now)) as target:
        with closing(target.deliver(some(5000), later())) as answers:
            next(answers)
        target.flush()

    assert 1 <= len(kit.received()) < 1000


def test_it_delivers_again_after_it_was_closed_early(kit: Kit) -> None:
    """Closing the generator gives up what is in flight, and leaves the target ready."""
    with closing(kit.open(now)) as target:
        with closing(target.deliver(some(100), later())) as answers:
            next(answers)
        more = some(10, first_index=1000)
        answered = sorted(index for index, _ in target.deliver(more, later()))

    assert answered == list(range(1000, 1010))
    assert set(payloads(more)) <= set(kit.received())


def test_answers_say_when_and_how_long(kit: Kit) -> None:
    """An answer's start is by the clock that was passed in, aware; its duration is not negative."""
    moment = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
    with closing(kit.open(lambda: moment)) as target:
        answers = list(target.deliver(some(3), moment + timedelta(seconds=5)))

    assert [answer.started_at for _, answer in answers] == [moment] * 3
    assert all(answer.duration_ms >= 0 for _, answer in answers)


def test_a_target_says_how_many_answers_may_wait(kit: Kit) -> None:
    """`flush_every` is a positive number."""
    with closing(kit.open(now)) as target:
        every = target.flush_every

    assert every >= 1


def test_what_is_held_back_is_not_sent(kit: Kit) -> None:
    """A target asks for each request once, when it sends it, and for one more than it gets."""
    asked: list[int] = []

    def may_send(request: Request, _left: int) -> bool:
        asked.append(request.index)
        return len(asked) <= 13

    requests = some(40)
    with closing(kit.open(now)) as target:
        answered = sorted(index for index, _ in target.deliver(Feed(requests, may_send), later()))
        target.flush()

    assert answered == list(range(13))
    assert asked == list(range(14))
    assert sorted(kit.received()) == payloads(requests[:13])


def test_a_target_says_how_many_more_its_last_answer_holds_for(kit: Kit) -> None:
    """They come next, one after the other; in the end there are none."""
    more = [0]
    with closing(kit.open(now)) as target:
        more += [target.more_of_answer for _ in target.deliver(some(23), later())]

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
        fault_points.install(stop_at("target.answered"))
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
