"""The HTTP target that takes several deliveries in one request, against a real receiver: over HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import quote

import certificates
import pytest
from demo.receiver import Receiver
from unit.loopback import LOOPBACK, later, now

from eventbridge.config.connection import Connection
from eventbridge.delivery.per_delivery import RequestFeed
from eventbridge.model.outcome import Response
from eventbridge.policy.batch_request import batch_request_id
from eventbridge.targets.http.fields import HttpFields
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Request, Target

EVENT = "application/cloudevents+json"


@pytest.fixture(scope="module", params=["HTTP/1.1", "HTTP/2"])
def receiver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """Run one receiver for the module: in the clear, or over TLS, where it offers HTTP/2 and is vouched for."""
    folder = tmp_path_factory.mktemp("receiver")
    http2 = request.param == "HTTP/2"
    own = certificates.self_signed().write(folder / "own.pem") if http2 else None
    with pytest.MonkeyPatch.context() as environment:
        if own is not None:
            environment.setenv("SSL_CERT_FILE", str(own))
        with Receiver(folder / "log.jsonl", whole=True, certificate=own, http2=http2) as running:
            yield running


def target_of(url: str, count: int = 10, size_bytes: int = 1 << 18, *, extra: Any = None, **fields: Any) -> Target:
    batch = {"count": count, "size_bytes": size_bytes}
    rule = HttpFields.model_validate(
        {"name": "crm", "type": "http", "url": url, "allow_http": True, "batch": batch, "connection": "crm", **fields}
    )
    held = Connection("crm", "http", extra={"any_host": True, **(extra or {})})
    return open_target("r", rule, lambda _: held, now, LOOPBACK)


def some(number: int, content_type: str = "application/json", **fields: Any) -> list[Request]:
    made = [json.dumps({"n": n}).encode() for n in range(number)]
    return [Request(n, str(uuid.uuid4()), payload, content_type, **fields) for n, payload in enumerate(made)]


def responses_of(target: Target, requests: list[Request]) -> dict[int, Response]:
    """Deliver as a run does: an undecided delivery goes again."""
    found: dict[int, Response] = {}
    for _ in range(20):
        left = [each for each in requests if each.index not in found]
        for index, response in target.deliver(left, later()):
            assert index not in found
            found[index] = response
    return found


def seen(receiver: Receiver, path: str) -> list[dict[str, Any]]:
    return [request for request in receiver.requests() if request["path"] == path]


def test_events_go_out_as_cloudevents_in_batched_mode(receiver: Receiver) -> None:
    """One array in the deliveries' order; the ids are listed, and the request has one of its own that is their hash."""
    requests = some(25, EVENT)
    with closing(target_of(receiver.url("/healthy/events"), max_in_flight=1)) as target:
        responses = responses_of(target, requests)

    assert {response.code for response in responses.values()} == {200}
    got = seen(receiver, "/healthy/events")
    assert [len(json.loads(each["body"])) for each in got] == [10, 10, 5]
    assert got[0]["body"] == b"[" + b",".join(each.payload for each in requests[:10]) + b"]"
    headers = got[0]["headers"]
    ids = [each.delivery_id for each in requests[:10]]
    assert headers["content-type"] == "application/cloudevents-batch+json"
    assert headers["webhook-ids"] == ",".join(ids)
    assert headers["webhook-id"] == batch_request_id(ids)
    assert headers["traceparent"].split("-")[1] == batch_request_id(ids).replace("-", "")


def test_a_batch_request_of_one_is_an_array_under_its_deliverys_id(receiver: Receiver) -> None:
    """Its receiver has one form to read, and the id that it knows."""
    [request] = some(1)
    with closing(target_of(receiver.url("/healthy/one"))) as target:
        responses_of(target, [request])

    [got] = seen(receiver, "/healthy/one")
    assert got["body"] == b'[{"n": 0}]'
    assert got["headers"]["webhook-id"] == got["headers"]["webhook-ids"] == request.delivery_id


def test_the_signature_is_that_of_the_array(receiver: Receiver) -> None:
    """Standard Webhooks, over the request's id and body."""
    secret = base64.b64encode(b"k" * 24).decode()
    with closing(target_of(receiver.url("/healthy/signed"), extra={"signing_secret": f"whsec_{secret}"})) as target:
        responses_of(target, some(3))

    [got] = seen(receiver, "/healthy/signed")
    headers = got["headers"]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + got["body"]
    digest = hmac.new(b"k" * 24, signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()


def test_a_payload_that_fits_no_array_is_sent_alone_unchanged(receiver: Receiver) -> None:
    """Text, bytes that only claim to be JSON, and what has headers of its own; events and values never mix."""
    kinds = [
        (EVENT, b"{}"),
        (EVENT, b"{}"),
        ("application/json", b"1"),
        ("text/plain", b"x"),
        ("application/json", b"\xff"),
    ]
    requests = [Request(n, str(uuid.uuid4()), payload, kind) for n, (kind, payload) in enumerate(kinds)]
    requests.append(Request(5, str(uuid.uuid4()), b"{}", "application/json", {"ce-id": "1"}))
    requests.append(Request(6, str(uuid.uuid4()), b"{}", "application/json"))
    with closing(target_of(receiver.url("/healthy/mixed"), max_in_flight=1)) as target:
        responses = responses_of(target, requests)

    assert sorted(responses) == list(range(7))
    got = seen(receiver, "/healthy/mixed")
    assert [each["body"] for each in got] == [b"[{},{}]", b"[1]", b"x", b"\xff", b"{}", b"[{}]"]
    alone = [each["headers"] for each in got[2:5]]
    assert [each["webhook-id"] for each in alone] == [each.delivery_id for each in requests[3:6]]
    assert [each.get("webhook-ids") for each in alone] == [None] * 3
    assert [each["content-type"] for each in alone] == ["text/plain", "application/json", "application/json"]
    assert alone[2]["ce-id"] == "1"


def test_the_body_keeps_its_limit_unless_one_alone_is_larger(receiver: Receiver) -> None:
    """Brackets and commas count."""
    payloads = [b'"' + b"x" * size + b'"' for size in (100, 100, 100, 3_000, 100)]
    requests = [Request(n, str(uuid.uuid4()), each, "application/json") for n, each in enumerate(payloads)]
    with closing(target_of(receiver.url("/healthy/sizes"), size_bytes=1_024, max_in_flight=1)) as target:
        responses_of(target, requests)

    assert [len(json.loads(each["body"])) for each in seen(receiver, "/healthy/sizes")] == [3, 1, 1]


def test_only_what_is_not_acknowledged_is_left(receiver: Receiver) -> None:
    """Every third gets 503 at first; a response has what was said of its delivery, and no more."""
    requests = some(9)
    path = "/each/503/3/1/left"
    with closing(target_of(receiver.url(path))) as target:
        responses = dict(target.deliver(requests, later()))

    assert [responses[n].code for n in range(9)] == [200, 200, 503] * 3
    assert [responses[n].accepted for n in range(9)] == [True, True, False] * 3
    assert json.loads(responses[2].response_head) == {"id": requests[2].delivery_id, "status": 503}


def test_an_index_leaves_those_behind_it_unjudged(receiver: Receiver) -> None:
    """The first that was not taken has a response; the others are to be sent again."""
    with closing(target_of(receiver.url("/first/4/index"))) as target:
        first = dict(target.deliver(some(10), later()))

    assert sorted(first) == [0, 1, 2, 3, 4]
    assert (first[4].accepted, first[4].error_class) == (False, "NotAcknowledged")


def test_a_batch_request_that_is_too_large_is_halved_and_so_are_those_after_it(receiver: Receiver) -> None:
    """Each delivery gets a response once, by the request that was small enough; later batch requests begin smaller."""
    path = "/at-most/3/large"
    with closing(target_of(receiver.url(path), max_in_flight=1)) as target:
        responses = responses_of(target, some(20))
        sizes = [len(each["webhook_ids"]) for each in seen(receiver, path)]
        responses_of(target, some(20))

    assert {response.code for response in responses.values()} == {200}
    assert sizes[0] == 10
    assert sizes[1] <= 5, "what comes next is smaller already"
    after = [len(each["webhook_ids"]) for each in seen(receiver, path)][len(sizes) :]
    assert max(after) <= 3


def test_one_delivery_that_is_refused_costs_no_other(receiver: Receiver) -> None:
    """A 400 is searched for its cause, by halves."""
    requests = some(10)
    requests[6] = Request(6, str(uuid.uuid4()), b'"poison"', "application/json")
    with closing(target_of(receiver.url("/picky/crm"))) as target:
        responses = responses_of(target, requests)

    assert {index: response.code for index, response in responses.items()} == {
        n: 400 if n == 6 else 200 for n in range(10)
    }
    assert len(seen(receiver, "/picky/crm")) <= 2 * 4 + 1


def test_requests_in_flight_are_counted_not_deliveries(receiver: Receiver) -> None:
    """`max_in_flight` batch requests are out at a time."""
    path = "/delay/50?flight"
    with closing(target_of(receiver.url(path), max_in_flight=3)) as target:
        responses_of(target, some(100))

    assert max(each["in_flight"] for each in seen(receiver, path)) == 3


def test_nothing_is_taken_that_is_not_sent() -> None:
    """The next item is checked by index: a caller that counts taken items, for a rate, counts sent ones."""
    asked: list[int] = []

    def may_send(request: Request, _left: int) -> bool:
        asked.append(request.index)
        return len(asked) <= 13

    requests = [Request(n, str(uuid.uuid4()), b'"' + b"x" * 400 + b'"', "application/json") for n in range(40)]
    with closing(target_of("http://127.0.0.1:1/refused", size_bytes=1_024, timeout_seconds=1.0)) as target:
        responded = [index for index, _ in target.deliver(RequestFeed(requests, may_send), later())]

    assert sorted(responded) == list(range(13))
    assert asked == list(range(14))


def test_secrets_repeated_by_a_response_are_masked_in_its_items(receiver: Receiver) -> None:
    """Results are read as they came, and kept with asterisks."""
    said = {"delivery_results": [{"status": 400, "error": "bad token s3cr3t-token"}]}
    path = "/say/" + quote(json.dumps(said), safe="")
    with closing(target_of(receiver.url(path), extra={"token": "s3cr3t-token"})) as target:
        [response] = responses_of(target, some(1)).values()

    assert response.code == 400
    assert json.loads(response.response_head) == {"status": 400, "error": "bad token ************"}


@pytest.mark.parametrize(
    "result",
    [{"status": 400, "error": "e" * 992 + "s3cr3t-token"}, {"status": 400, "id": "i" * 92 + "s3cr3t-token"}],
    ids=["error", "id"],
)
def test_a_cut_text_contains_no_piece_of_a_secret(receiver: Receiver, result: dict[str, Any]) -> None:
    """What is said of an item has its length after it has lost its secrets."""
    path = "/say/" + quote(json.dumps({"delivery_results": [result]}), safe="")
    with closing(target_of(receiver.url(path), extra={"token": "s3cr3t-token"})) as target:
        [response] = responses_of(target, some(1)).values()

    assert not response.accepted
    assert response.error is not None
    assert "s3cr" not in response.error
    assert len(response.error) <= 1_000


def test_a_body_is_read_beyond_what_is_kept_of_it(receiver: Receiver) -> None:
    """200 results with words take more than 20 KB."""
    results = [{"status": 200, "error": "e" * 500} for _ in range(90)]
    path = "/say/" + quote(json.dumps({"delivery_results": results}), safe="")
    with closing(target_of(receiver.url(path), count=90)) as target:
        responses = responses_of(target, some(90))

    assert [response.code for response in responses.values()] == [200] * 90


@pytest.mark.parametrize("path", ["/cut/b", "/drop/b", "/hang/b", "/status/503"])
def test_a_response_that_is_none_is_everybodys(receiver: Receiver, path: str) -> None:
    """Each delivery of the batch request has the outcome of its request."""
    with closing(target_of(receiver.url(path), timeout_seconds=1.0)) as target:
        responses = responses_of(target, some(4))

    assert len(responses) == 4
    assert len({(response.code, response.error_class, response.accepted) for response in responses.values()}) == 1
    assert not responses[0].accepted


def test_a_broken_connection_is_no_response(receiver: Receiver) -> None:
    """Several batch requests are out, over HTTP/2, when it closes in the middle of a response: none is delivered."""
    path = "/drop/several"
    with closing(target_of(receiver.url(path), max_in_flight=3)) as target:
        responses = dict(target.deliver(some(30), later()))

    assert sorted(responses) == list(range(30))
    assert {(each.accepted, each.error_class) for each in responses.values()} == {(False, "NetworkError")}


def test_a_response_without_end_is_read_so_far_and_no_further(receiver: Receiver) -> None:
    """Beyond 1 MB it is cut off: 2xx without a word of ours is delivered, results that break off are not."""
    endless = "/say/" + quote('{"delivery_results": [{"status": 200}', safe="") + "%20" * 20_000
    with closing(target_of(receiver.url("/huge/batch"))) as target:
        plain = responses_of(target, some(3))
    with closing(target_of(receiver.url(endless))) as target:
        [cut] = [*dict(target.deliver(some(1), later())).values()]

    assert {each.accepted for each in plain.values()} == {True}
    assert (cut.accepted, cut.error_class) == (False, "UnclearResults")


def test_batch_requests_share_a_connection_over_http_2(receiver: Receiver) -> None:
    """Over HTTP/1.1 each that is out has one of its own; either way every batch request has its own response."""
    path = "/each/503/2/1/shared"
    with closing(target_of(receiver.url(path), 5, max_in_flight=4)) as target:
        responses = dict(target.deliver(some(100), later()))

    got = seen(receiver, path)
    connections = {each["connection"] for each in got}
    assert Counter(response.code for response in responses.values()) == {200: 50, 503: 50}
    assert (":method" in got[0]["headers"]) == (len(connections) == 1)
    assert len(connections) <= 4


def test_when_time_is_over_all_of_a_batch_request_is_given_up(receiver: Receiver) -> None:
    """What was in flight is Interrupted, delivery by delivery."""
    with closing(target_of(receiver.url("/hang/over"), max_in_flight=1)) as target:
        responses = dict(target.deliver(some(30), later(1.0)))

    assert sorted(responses) == list(range(10))
    assert {response.error_class for response in responses.values()} == {"Interrupted"}


def test_it_says_how_many_its_last_response_still_holds_for(receiver: Receiver) -> None:
    """A caller that ends early takes these first: they are delivered."""
    with closing(target_of(receiver.url("/healthy/more"), 4, max_in_flight=1)) as target:
        more = [target.more_of_response for _ in target.deliver(some(6), later())]

    assert more == [3, 2, 1, 0, 1, 0]
