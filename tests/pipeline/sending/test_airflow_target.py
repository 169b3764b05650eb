"""The target type `airflow` at Airflow's own API server."""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_network
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pipeline.delivering import REFUSED, RunningClock, Sending, http, settled
from pipeline.dying import DIED, DONE, push_that_dies
from services.airflow import PASSWORD, USER, AirflowServer
from stored import dead_letters

from eventbridge.config.connection import Connection
from eventbridge.control.try_target import send_event
from eventbridge.delivery.push import push
from eventbridge.errors import ConnectionUnusable, RuleFileError
from eventbridge.model.outcome import Response
from eventbridge.pipeline.commit.stage import commit
from eventbridge.repair.audit import audit
from eventbridge.rules.load import load_rules
from eventbridge.rules.model import Target
from eventbridge.targets.airflow.target import AirflowTarget
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import DeliverySpan, Request

PAGE = (Path(__file__).parents[3] / "docs" / "howto" / "connect-airflow.md").read_text()
(RULES,) = re.findall(r"^```yaml rules\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(DAG,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

AT = datetime(2026, 11, 30, 9, tzinfo=UTC)


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowServer]:
    """Airflow's API server, with the DAG of the page, others, and an asset."""
    with AirflowServer(tmp_path_factory.mktemp("airflow") / "home", DAG) as server:
        yield server


def now() -> datetime:
    return datetime.now(UTC)


def later(seconds: float = 30.0) -> datetime:
    return now() + timedelta(seconds=seconds)


def read(folder: Path, fields: str) -> Target:
    """Return the target of a rule file with these fields."""
    folder.mkdir(exist_ok=True)
    (folder / "r.yaml").write_text(
        "buses: {b: {source: {type: embedded}}}\n"
        f"rules: {{r: {{bus: b, pattern: {{}}, targets: {{jobs: {{type: airflow, connection: there, {fields}}}}}}}}}\n"
    )
    return load_rules(folder).rules["r"].destinations["jobs"]


def opened(airflow: AirflowServer, folder: Path, fields: str, **connection: Any) -> AirflowTarget:
    """Open a target of a rule, with the connection of the user that may do everything."""
    given = {"host": airflow.url, "login": USER, "password": PASSWORD, **connection}
    target = open_target(
        "r",
        read(folder / "rules", f"allow_http: true, {fields}"),
        lambda name: Connection(name, "http", **given),
        now,
        (ip_network("127.0.0.0/8"),),
    )
    assert isinstance(target, AirflowTarget)
    return target


def requests_of(*payloads: object) -> list[Request]:
    return [
        Request(index, str(uuid.uuid4()), json.dumps(payload).encode(), "application/json")
        for index, payload in enumerate(payloads)
    ]


def delivered(target: AirflowTarget, requests: list[Request]) -> dict[int, Response]:
    with closing(target):
        return dict(target.deliver(requests, later()))


def confs(runs: Mapping[str, Any], requests: list[Request]) -> list[object]:
    return [runs[request.delivery_id]["conf"] for request in requests]


def test_a_delivery_starts_one_run_however_often_it_is_sent(airflow: AirflowServer, tmp_path: Path) -> None:
    """The run has the delivery's id and its payload as conf; Airflow refuses the second, which counts as delivered."""
    requests = requests_of({"order": "A-1", "total": 12345678901234567890}, {"order": "ü", "lines": [{"n": 1.50}]})
    first = delivered(opened(airflow, tmp_path, "dag_id: load_orders"), requests)
    again = delivered(opened(airflow, tmp_path, "dag_id: load_orders"), requests)

    assert [(each.accepted, each.code) for each in first.values()] == [(True, 200)] * 2
    assert [(each.accepted, each.code) for each in again.values()] == [(True, 409)] * 2
    runs = airflow.runs("load_orders")
    assert confs(runs, requests) == [json.loads(request.payload) for request in requests]


def test_a_batch_of_deliveries_starts_one_run(airflow: AirflowServer, tmp_path: Path) -> None:
    """All events of the span are in the run's conf; what is not JSON is a string; a repeat starts nothing."""
    payloads = [b'{"n": 1}', b"[2]", b"plain text"]
    ids = [uuid.uuid4().bytes for _ in payloads]
    span = DeliverySpan(f"20261130T090000Z-{uuid.uuid4().hex}", AT, pa.array(ids), pa.array(payloads))
    responses = []
    for _ in range(2):
        with closing(opened(airflow, tmp_path, "dag_id: load_orders, batch: {count: 100}")) as target:
            responses.append(target.deliver_span(span, later()))

    assert [(each.response.accepted, each.response.code) for each in responses if each is not None] == [
        (True, 200),
        (True, 409),
    ]
    assert airflow.runs("load_orders")[span.name]["conf"] == {"events": [{"n": 1}, [2], "plain text"]}


def span_of(*payloads: bytes) -> DeliverySpan:
    ids = [uuid.uuid4().bytes for _ in payloads]
    return DeliverySpan(f"20261130T090000Z-{uuid.uuid4().hex}", AT, pa.array(ids), pa.array(payloads, pa.binary()))


@pytest.mark.parametrize(
    ("batch", "sizes"), [("count: 2", [2, 2, 1]), ("bytes: 1KiB", [3, 2]), ("count: 5", [5])], ids=str
)
def test_a_run_has_no_more_events_than_its_batch_allows(
    airflow: AirflowServer, tmp_path: Path, batch: str, sizes: list[int]
) -> None:
    """A span that is larger starts several runs, and none of them twice; each event is in one of them."""
    span = span_of(*(b'{"n": %d, "text": "%s"}' % (n, b"x" * 300) for n in range(5)))
    for code in (200, 409):
        with closing(opened(airflow, tmp_path, f"dag_id: load_orders, batch: {{{batch}}}")) as target:
            found = target.deliver_span(span, later())
        assert found is not None
        assert (found.response.accepted, found.response.code) == (True, code)

    confs = [run["conf"] for name, run in airflow.runs("load_orders").items() if name.startswith(span.name)]
    assert sorted((len(conf["events"]) for conf in confs), reverse=True) == sizes
    assert sorted(event["n"] for conf in confs for event in conf["events"]) == [0, 1, 2, 3, 4]


def test_a_changed_batch_leaves_no_event_out(airflow: AirflowServer, tmp_path: Path) -> None:
    """A span whose first try ended early is divided in another way by the next one: some events come twice."""
    span = span_of(*(b'{"n": %d}' % n for n in range(6)))
    first = span._replace(delivery_ids=span.delivery_ids[:4], payloads=span.payloads[:4])
    for part, most in ((first, 2), (span, 3)):
        with closing(opened(airflow, tmp_path, f"dag_id: load_orders, batch: {{count: {most}}}")) as target:
            assert target.deliver_span(part, later()) is not None

    confs = [run["conf"] for name, run in airflow.runs("load_orders").items() if name.startswith(span.name)]
    assert {event["n"] for conf in confs for event in conf["events"]} == {0, 1, 2, 3, 4, 5}


def test_a_span_of_more_runs_than_the_dag_may_have_is_finished(airflow: AirflowServer, tmp_path: Path) -> None:
    """Each try starts what the DAG has room for, beside the runs of earlier tries."""
    span = span_of(*(b'{"n": %d}' % n for n in range(10)))
    tries, stored = [], []
    for _ in range(2):
        with closing(opened(airflow, tmp_path, "dag_id: three, batch: {count: 2}")) as target:
            assert target.check() is None
            found = target.deliver_span(span, later())
        assert found is not None
        tries.append((found.response.accepted, found.response.error_class))
        stored.append(Counter(each.code for each in found.stored.values()))
        started = [name for name in airflow.runs("three") if name.startswith(span.name)]
        for name in started:
            airflow.call("PATCH", f"dags/three/dagRuns/{name}", json={"state": "success"})

    assert tries == [(False, "TargetBusy"), (True, None)]
    assert stored == [{200: 6}, {}]
    assert len(started) == 5


def test_a_run_with_a_large_conf_does_not_hide_how_many_there_are(airflow: AirflowServer, tmp_path: Path) -> None:
    """The conf of a queued run may be larger than what is read of a response."""
    for _ in range(2):
        target = opened(airflow, tmp_path, "dag_id: large")
        assert target.check() is None
        (response,) = delivered(target, requests_of({"text": "x" * 1_200_000})).values()
        assert response.accepted


def test_an_event_that_airflow_cannot_store_keeps_no_other_out_of_its_batch(
    airflow: AirflowServer, tmp_path: Path
) -> None:
    """PostgreSQL refuses a conf with the character NUL; such an event is rejected alone, whenever the span is sent."""
    unfit = [b'{"n": "\\u0000"}', b"a\0b", b'{"n": "\\ud800"}', b'{"n": 1e999}', b'{"n": ' + b"9" * 5_000 + b"}"]
    payloads = [b'{"n": 1}', *unfit, b'{"n": "\\\\u0000"}']
    ids = [uuid.uuid4().bytes for _ in payloads]
    span = DeliverySpan(f"20261130T090000Z-{uuid.uuid4().hex}", AT, pa.array(ids), pa.array(payloads))
    for _ in range(2):
        with closing(opened(airflow, tmp_path, "dag_id: load_orders, batch: {count: 100}")) as target:
            found = target.deliver_span(span, later())
        assert found is not None
        assert found.response.accepted
        assert [ids.index(each) for each in found.rejected] == [1, 2, 3, 4, 5]
        assert {each.error_class for each in found.rejected.values()} == {"MessageRefused"}

    assert airflow.runs("load_orders")[span.name]["conf"] == {"events": [{"n": 1}, {"n": "\\u0000"}]}
    whole = span._replace(
        name=f"20261130T090000Z-{uuid.uuid4().hex}", delivery_ids=pa.array(ids[1:2]), payloads=pa.array(payloads[1:2])
    )
    with closing(opened(airflow, tmp_path, "dag_id: load_orders, batch: {count: 100}")) as target:
        only = target.deliver_span(whole, later())
    assert only is not None
    assert list(only.rejected) == ids[1:2]
    assert whole.name not in airflow.runs("load_orders")


@pytest.mark.parametrize(
    ("responses", "error_class", "problem"),
    [
        ({}, "NotAirflow", "does not respond as Airflow's REST API"),
        ({"GET": b'{"dag_id": "load_orders"}', "POST": b"<html>Log in</html>"}, "NotAirflow", None),
        ({"status": 401}, "HTTP 401", "refuses the login of connection 'there'. Check its token"),
    ],
    ids=["a server that accepts everything", "a proxy with a page for its login", "a token that has ended"],
)
def test_what_no_airflow_has_accepted_is_not_delivered(
    tmp_path: Path, responses: dict[str, Any], error_class: str, problem: str | None
) -> None:
    """A status 200 by another server starts no run, so the delivery is tried again; the check finds a wrong token."""

    class Handler(BaseHTTPRequestHandler):
        def _respond(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            body = responses.get(self.command, b"{}")
            self.send_response(responses.get("status", 200))
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _respond

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        connection = {"host": f"http://127.0.0.1:{server.server_port}", "extra": {"token": "t0ken-of-ann"}}
        target = open_target(
            "r",
            read(tmp_path / "rules", "allow_http: true, dag_id: load_orders"),
            lambda name: Connection(name, "http", **connection),  # type: ignore[arg-type]
            now,
            (ip_network("127.0.0.0/8"),),
        )
        assert isinstance(target, AirflowTarget)
        found = target.check()
        (response,) = delivered(target, requests_of({"n": 1})).values()
        server.shutdown()

    assert (response.accepted, response.code, response.error_class) == (False, None, error_class)
    assert found == problem if problem is None else problem in str(found)


def test_no_more_runs_are_started_than_the_dag_may_have(airflow: AirflowServer, tmp_path: Path) -> None:
    """At max_active_runs the target asks for a pause instead; the deliveries behind it are not tried."""
    target = opened(airflow, tmp_path, "dag_id: few")
    responses = delivered(target, requests_of(*({"n": n} for n in range(6))))

    assert sorted(responses) == [0, 1, 2, 3]
    assert [response.accepted for _, response in sorted(responses.items())] == [True] * 3 + [False]
    assert (responses[3].error_class, responses[3].retry_after) == ("TargetBusy", "10")
    assert len(airflow.runs("few")) == 3


@pytest.mark.parametrize(
    ("fields", "error_class", "text"),
    [
        ("dag_id: no_such_dag", "DagMissing", "DAG 'no_such_dag' does not exist in the Airflow at"),
        ("dag_id: paused", "DagPaused", "DAG 'paused' is paused in the Airflow at"),
        ("asset: no_such_asset", "AssetMissing", "asset 'no_such_asset' does not exist in the Airflow at"),
    ],
)
def test_a_dag_that_cannot_run_is_named(
    airflow: AirflowServer, tmp_path: Path, fields: str, error_class: str, text: str
) -> None:
    """Nothing is sent; the deliveries are tried again, because somebody may deploy or unpause the DAG."""
    requests = requests_of({"n": 1}, {"n": 2})
    responses = delivered(opened(airflow, tmp_path, fields), requests)
    with closing(opened(airflow, tmp_path, fields)) as target:
        problem = target.check()

    assert [(each.accepted, each.error_class) for each in responses.values()] == [(False, error_class)] * 2
    assert text in str(responses[0].error)
    assert problem is not None
    assert text in problem


def test_an_asset_event_has_the_payload_and_the_delivery_id(airflow: AirflowServer, tmp_path: Path) -> None:
    """The asset is named by name or URI; a member of the payload is the partition key."""
    requests = requests_of({"day": "2026-11-30", "rows": 7}, {})
    by_name = delivered(opened(airflow, tmp_path, "asset: orders, partition_key: day"), requests[:1])
    by_uri = delivered(opened(airflow, tmp_path, 'asset: "s3://lake/orders"'), requests[1:])

    assert [(each.accepted, each.code) for each in [*by_name.values(), *by_uri.values()]] == [(True, 200)] * 2
    events = airflow.call("GET", "assets/events?order_by=timestamp")["asset_events"]
    assert [(each["extra"]["delivery_id"], each["partition_key"]) for each in events] == [
        (requests[0].delivery_id, "2026-11-30"),
        (requests[1].delivery_id, None),
    ]
    assert events[0]["extra"]["rows"] == 7

    (request,) = requests_of({"delivery_id": "of the payload"})
    delivered(opened(airflow, tmp_path, "asset: orders"), [request])
    last = airflow.call("GET", "assets/events?order_by=timestamp")["asset_events"][-1]
    assert last["extra"]["delivery_id"] == request.delivery_id


@pytest.mark.parametrize(
    ("fields", "payload", "text"),
    [
        ("dag_id: load_orders", b'"text"', "the conf of a DAG run must be a JSON object, but the payload is not"),
        ("dag_id: load_orders", b'{"n": NaN}', "the conf of a DAG run must be a JSON object, but the payload is not"),
        ("asset: orders", b"[1]", "the extra of an asset event must be a JSON object, but the payload is not"),
        (
            "asset: orders, partition_key: day",
            b'{"day": 3}',
            "'day' of the payload, the partition key, must be text",
        ),
    ],
)
def test_a_payload_that_airflow_cannot_take_is_refused_alone(
    airflow: AirflowServer, tmp_path: Path, fields: str, payload: bytes, text: str
) -> None:
    """The delivery becomes a dead letter that says why; the one beside it is delivered."""
    requests = [Request(0, str(uuid.uuid4()), payload, ""), *requests_of({"day": "x"})]
    requests[1].index = 1
    responses = delivered(opened(airflow, tmp_path, fields), requests)

    assert (responses[0].error_class, responses[1].accepted) == ("MessageRefused", True)
    assert text in str(responses[0].error)


def test_a_wrong_password_is_reported_without_it(airflow: AirflowServer, tmp_path: Path) -> None:
    """Nothing is sent, and the message names the connection."""
    target = opened(airflow, tmp_path, "dag_id: load_orders", password="of-somebody-else")
    (response,) = delivered(target, requests_of({"n": 1})).values()

    assert response.error_class == "TokenUnavailable"
    assert "login of connection 'there'" in str(response.error)
    assert "Check the connection's login and password" in str(response.error)
    assert "of-somebody-else" not in str(response)


def test_a_healthy_target_passes_its_check(airflow: AirflowServer, tmp_path: Path) -> None:
    """The check starts no run and makes no event."""
    before = len(airflow.runs("load_orders"))
    for fields in ("dag_id: load_orders", "dag_id: load_orders, batch: {count: 10}", "asset: orders"):
        with closing(opened(airflow, tmp_path, fields)) as target:
            assert target.check() is None
    assert len(airflow.runs("load_orders")) == before


def test_eventbridges_own_account_is_not_for_rules(airflow: AirflowServer, tmp_path: Path) -> None:
    """A rule file cannot use the connection with which EventBridge manages pools and notes."""
    target = read(tmp_path, f"allow_http: true, dag_id: x, url: '{airflow.url}'").model_copy(
        update={"connection": "eventbridge_airflow"}
    )
    with pytest.raises(ConnectionUnusable, match="EventBridge's own connection to Airflow's API"):
        open_target("r", target, lambda name: Connection(name, "http", airflow.url), now)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("", "must have dag_id or asset"),
        ("dag_id: a, asset: b", "must have dag_id or asset, not both"),
        ("dag_id: a/b", "'a/b' is not a valid DAG id"),
        ("dag_id: ..", "'..' is not a valid DAG id"),
        ("dag_id: eventbridge_redrive_dead_letters", "is a DAG of EventBridge, which rules may not start"),
        ("asset: a, batch: {count: 2}", "batch puts many events into one DAG run"),
        ("dag_id: a, batch: {}", "batch is empty"),
        ("dag_id: a, batch: {count: 2}, ordering_key: $.subject", "ordering_key applies to single deliveries"),
        ("dag_id: a, url: 'http://airflow.example'", "http"),
        ("dag_id: a, content_mode: binary", "content_mode"),
    ],
)
def test_fields_that_do_not_fit_are_refused_in_the_rule_file(tmp_path: Path, fields: str, message: str) -> None:
    """The error has the file and the line."""
    with pytest.raises(RuleFileError) as refused:
        read(tmp_path, fields)
    assert message in str(refused.value)
    assert "r.yaml:2" in str(refused.value)


def at(airflow: AirflowServer, fields: str) -> str:
    return f"{{type: airflow, connection: there, allow_http: true, {fields}}}"


@pytest.fixture
def with_airflow(site: Any, airflow: AirflowServer) -> None:
    """Give the installation the connection `there`."""
    connection = {"conn_type": "http", "host": airflow.url, "login": USER, "password": PASSWORD}
    site.environ["EVENTBRIDGE_CONN_THERE"] = json.dumps(connection)
    site.environ["EVENTBRIDGE_BATCH_TIMEOUT"] = "3600"


@pytest.mark.parametrize("batch", ["", ", batch: {count: 10}"], ids=["single", "batch"])
def test_a_push_may_die_anywhere_and_starts_no_run_twice(
    sending: Sending, site: Any, with_airflow: None, airflow: AirflowServer, tmp_path: Path, batch: str
) -> None:
    """Killed around any send, response or record: each event is in exactly one run afterwards."""
    before = airflow.runs("load_orders").keys()
    batch_of = sending.routed(4, crm=at(airflow, f"dag_id: load_orders, max_in_flight: 1{batch}"))

    for number in count(1):
        wreck = site.copy(tmp_path / f"wreck-{number}")
        code = push_that_dies(wreck.folder, wreck.environ, batch_of.batch_id, number)
        runtime = wreck.reopen()
        push(runtime, batch_of.batch_id, 0)
        Sending(wreck, sending.receiver, sending.order).settle(batch_of)

        statuses = {row.status for row in settled(runtime, batch_of.batch_id)["crm"]}
        assert statuses == {"delivered"}
        assert commit(runtime, batch_of.batch_id)
        assert audit(runtime).differences == ()
        wreck.close()
        if code == DONE:
            break
        assert code == DIED
    assert number > 3
    started = {name: run for name, run in airflow.runs("load_orders").items() if name not in before}
    events = [event for run in started.values() for event in run["conf"].get("events", [run["conf"]])]
    assert Counter(event["id"] for event in events) == {event["id"]: 1 for event in events}
    assert len(events) == 4


def test_a_dead_letter_starts_a_run(sending: Sending, with_airflow: None, airflow: AirflowServer) -> None:
    """As a dead letter queue, the type starts a run for each dead letter, whose conf is the whole dead letter."""
    before = airflow.runs("load_orders").keys()
    queue = at(airflow, "dag_id: load_orders")
    sending.begin(2, crm=http(REFUSED, retry="{policy: custom, max_retries: 0}", dead_letter_queue=queue))
    sending.deliver()

    confs = [run["conf"] for name, run in airflow.runs("load_orders").items() if name not in before]
    entries = list(dead_letters(sending.runtime, whole=True))
    assert len(confs) == len(entries) == 2
    assert {each["event"] for each in confs} == {each["event"].decode() for each in entries}


def test_a_dead_letter_is_only_what_started_no_run(
    sending: Sending, with_airflow: None, airflow: AirflowServer, tmp_path: Path
) -> None:
    """If a later run of a span fails for good, the events of the runs that have started count as delivered."""
    for name in airflow.runs("three"):
        airflow.call("PATCH", f"dags/three/dagRuns/{name}", json={"state": "success"})
    before = airflow.runs("three").keys()
    with closing(opened(airflow, tmp_path, "dag_id: three")) as target:
        assert target.check() is None  # counts the runs of the DAG again
    never = "retry: {policy: custom, max_retries: 0}"
    sending.begin(10, crm=at(airflow, f"dag_id: three, batch: {{count: 2}}, {never}"))
    batch_id = sending.deliver_batch()
    assert batch_id is not None

    statuses = Counter(row.status for row in settled(sending.runtime, batch_id)["crm"])
    started = [run for name, run in airflow.runs("three").items() if name not in before]
    sent = {event["id"] for run in started for event in run["conf"]["events"]}
    dead = {json.loads(entry["event"])["id"] for entry in dead_letters(sending.runtime, whole=True)}
    assert statuses == {"delivered": 6, "dead_lettered": 4}
    assert (len(sent), len(dead), sent & dead) == (6, 4, set())


def test_one_event_can_be_sent_by_hand(
    sending: Sending, with_airflow: None, airflow: AirflowServer, order: Callable[..., bytes]
) -> None:
    """`targets send` starts a run, also of a target with batch."""
    before = airflow.runs("load_orders").keys()
    sending.rules(one=at(airflow, "dag_id: load_orders"), many=at(airflow, "dag_id: load_orders, batch: {count: 10}"))
    for name in ("one", "many"):
        found = send_event(sending.runtime, "orders", name, order(1))
        assert found.accepted

    confs = [run["conf"] for name, run in airflow.runs("load_orders").items() if name not in before]
    assert sorted("events" in conf for conf in confs) == [False, True]


def test_the_example_of_the_page_starts_its_dags(
    sending: Sending,
    site: Any,
    with_airflow: None,
    airflow: AirflowServer,
    order: Callable[..., bytes],
    clock: RunningClock,
) -> None:
    """A large order starts a run of its own; all orders start one run, and make asset events."""
    before = {name: airflow.runs(name).keys() for name in ("review_order", "load_orders")}
    events = len(airflow.call("GET", "assets/events")["asset_events"])
    airflow.call("PATCH", "dags/review_order", json={"is_paused": False})
    site.environ["EVENTBRIDGE_CONN_JOBS"] = site.environ["EVENTBRIDGE_CONN_THERE"]
    site.write_rules(
        RULES.replace("type: airflow", "type: airflow, allow_http: true").replace(
            "type: airflow, allow_http: true\n", "type: airflow\n        allow_http: true\n"
        )
    )
    orders = order("a", data={"id": "A-1", "amount": 5000}), order("b", data={"id": "A-2", "amount": 5})
    site.publish(*orders, topic="events")
    sending.deliver()
    clock.advance(60)  # a DAG that has just been unpaused is looked up again
    sending.deliver()

    new = {name: [run for each, run in airflow.runs(name).items() if each not in before[name]] for name in before}
    assert [run["conf"] for run in new["review_order"]] == [{"order": "A-1", "amount": 5000}]
    loaded = [event["id"] for run in new["load_orders"] for event in run["conf"]["events"]]
    assert sorted(loaded) == ["a", "b"]
    assert len(airflow.call("GET", "assets/events")["asset_events"]) >= events + 2


def test_deliveries_wait_for_the_dag_and_none_is_lost(
    sending: Sending, site: Any, with_airflow: None, airflow: AirflowServer, clock: RunningClock
) -> None:
    """A paused DAG costs attempts only; once it is unpaused, all of them start runs, up to max_active_runs."""
    airflow.call("PATCH", "dags/paused", json={"is_paused": True})
    retry = "retry: {policy: custom, max_retries: 5, initial_delay: 1m, multiplier: 1, max_delay: 1m, jitter: 0}"
    runtime = sending.begin(20, crm=at(airflow, f"dag_id: paused, {retry}"))
    batch_id = sending.deliver_batch()
    assert batch_id is not None
    assert airflow.runs("paused") == {}
    reasons = {row.reason for row in settled(runtime, batch_id)["crm"] if row.attempts}
    assert reasons == {"DagPaused"}

    airflow.call("PATCH", "dags/paused", json={"is_paused": False})
    for _ in range(3):
        clock.advance(120)
        sending.deliver()
    assert len(airflow.runs("paused")) == 16
