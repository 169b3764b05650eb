"""The response to a batch request decides each of its deliveries, and no invalid response counts as delivered."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbridge.model.outcome import DeadLettered, Delivered, Outcome, Response, RetryAt
from eventbridge.policy.batch_request import INDEX, RESULTS, ResponseContent, read_response
from eventbridge.policy.response_to_outcome import RetryTerms, decide
from eventbridge.rules.model import RetryPolicy

NOW = datetime(2026, 3, 1, tzinfo=UTC)
IDS = [f"0000000{n}-0000-8000-8000-00000000000{n}" for n in range(4)]
JSON = "application/json"


def taken(code: int = 200) -> Response:
    return Response(True, NOW, 12.0, code, response_head=b"the head")


def refused(code: int | None, **fields: Any) -> Response:
    return Response(False, NOW, 12.0, code, **fields)


def said(body: Any, content_type: str = JSON, retry_after: str | None = None) -> ResponseContent:
    return ResponseContent(body if isinstance(body, bytes) else json.dumps(body).encode(), content_type, retry_after)


def read(body: Any, content_type: str = JSON, code: int = 200, retry_after: str | None = None) -> list[Response | None]:
    return list(read_response(taken(code), said(body, content_type, retry_after), IDS).responses)


def results(*statuses: Any, **fields: Any) -> dict[str, Any]:
    return {RESULTS: [{"status": status} | fields for status in statuses]}


def outcome(response: Response | None) -> Outcome:
    assert response is not None
    terms = RetryTerms(RetryPolicy(), timeout_seconds=10.0)
    return decide(response, terms, attempts=1, arrived_at=NOW, on_hold_seconds=0.0, now=NOW, draw=0.5)


@pytest.mark.parametrize(
    "reported",
    [
        ResponseContent(b""),
        ResponseContent(b"ok\n", "text/plain"),
        ResponseContent(b" \n", JSON),
        ResponseContent(b"<html>", "text/html"),
        said({"status": "ok", "results": [{"status": 500}], "acknowledged": True}),
        said({"data": results(503)}),
        said([{"status": 503}]),
        said("ok"),
        said(None),
    ],
)
def test_a_2xx_that_says_no_more_is_everybodys(reported: ResponseContent) -> None:
    """A 2xx delivers every item unless its body has one of two members that no response has by chance."""
    assert read_response(taken(202), reported, IDS).responses == (taken(202),) * 4


def test_each_is_judged_by_its_own_status() -> None:
    """Each item's status counts like that of a single request; `retry_after` is the item's, else the response's."""
    body = results(200, 503, 400, 410)
    body[RESULTS][1] |= {"retry_after": 7, "error": "busy"}
    responses = read(body, code=207, retry_after="60")

    assert [type(outcome(each)) for each in responses] == [Delivered, RetryAt, DeadLettered, DeadLettered]
    assert [each.retry_after for each in responses if each] == ["60", "7", "60", "60"]
    busy, gone = outcome(responses[1]), outcome(responses[3])
    assert isinstance(busy, RetryAt)
    assert busy.reason == "HTTP 503"
    assert isinstance(gone, DeadLettered)
    assert gone.disable_target
    assert responses[1] is not None
    assert (responses[1].code, responses[1].error, responses[1].duration_ms) == (
        503,
        "the recorded response has the target's error text",
        12.0,
    )
    assert json.loads(responses[1].response_head) == body[RESULTS][1]


@pytest.mark.parametrize("member", ["error", "id"])
def test_an_error_quotes_nothing_of_a_response(member: str) -> None:
    """Only the recorded response has the target's text, because that may quote the event."""
    body = {RESULTS: [{"status": 422, member: f"card 4111 {number}"} for number in range(4)]}
    responses = [each for each in read(body) if each is not None]

    assert len(responses) == 4
    for each in responses:
        assert not each.accepted
        assert "4111" not in (each.error or "")
        assert "4111" not in str(outcome(each))


def test_results_by_id_may_come_in_any_order_and_leave_some_out() -> None:
    """Results by id may be in any order; an item without a result was not acknowledged."""
    body = {RESULTS: [{"id": IDS[3].upper(), "status": 201}, {"id": IDS[0], "status": 500}]}
    responses = [each for each in read(body, "text/plain") if each is not None]

    assert [(each.accepted, each.code, each.error_class) for each in responses] == [
        (False, 500, None),
        (False, None, "NotAcknowledged"),
        (False, None, "NotAcknowledged"),
        (True, 201, None),
    ]


def test_an_acknowledge_index_judges_the_first_that_was_not_taken() -> None:
    """The index names the first item that was not accepted; later items are sent again as if they had not been sent."""
    responses = read({INDEX: 2})

    assert responses[:2] == [taken(), taken()]
    assert responses[2] is not None
    assert isinstance(outcome(responses[2]), RetryAt)
    assert responses[3] is None
    assert read({INDEX: 4}) == [taken()] * 4


def test_retry_after_applies_to_every_item_not_accepted() -> None:
    """`Retry-After` next to an index applies to all items from the index on."""
    responses = read({INDEX: 1}, retry_after="30")

    assert [each.retry_after for each in responses[1:] if each] == ["30"] * 3


@pytest.mark.parametrize(
    "body",
    [
        b"ok",
        b"{",
        b'{"delivery_results": [{"status": 200}, {"status": 200}, {"sta',
        b'{"acknowledge_index": 4, "acknowledge_index": 0}',
        b'{"acknowledge_index": NaN}',
        b"[" * 100_000,
        b"\xff\xfe",
        {INDEX: 5},
        {INDEX: -1},
        {INDEX: 2.0},
        {INDEX: True},
        {INDEX: "4"},
        {INDEX: None},
        {INDEX: 4} | results(200, 200, 200, 200),
        results(),
        results(200, 200, 200),
        results(200, 200, 200, 200, 200),
        results(200, 200, 200, "200"),
        results(200, 200, 200, True),
        results(200, 200, 200, 99),
        results(200, 200, 200, 600),
        results(200, 200, 200, 200.0),
        {RESULTS: None},
        {RESULTS: {"status": 200}},
        {RESULTS: [200, 200, 200, 200]},
        {RESULTS: [{}, {}, {}, {}]},
        results(200, id="00000009-0000-8000-8000-000000000009"),
        results(200, 200, id=IDS[0]),
        {RESULTS: [{"id": IDS[0], "status": 200}, {"status": 200}, {"status": 200}, {"status": 200}]},
    ],
)
def test_nonsense_counts_for_nothing(body: Any) -> None:
    """After an invalid response each delivery is retried, and its detail gives the reason."""
    found = [each for each in read(body, retry_after="9") if each is not None]

    assert [(each.accepted, each.code, each.error_class, each.retry_after) for each in found] == [
        (False, None, "UnclearResults", "9")
    ] * 4
    assert "status 200" in str(found[0].error)
    assert isinstance(outcome(found[0]), RetryAt)


@pytest.mark.parametrize("body", [b"", b"ok", {"status": "fine"}, []])
def test_207_promises_results(body: Any) -> None:
    """A 207 without results leaves the result of each delivery unknown."""
    assert {each.error_class for each in read(body, "text/plain", code=207) if each} == {"UnclearResults"}


def test_results_count_whatever_they_are_declared_as() -> None:
    """Results count without a content type too; a body that is cut off within the results is unclear."""
    whole = json.dumps(results(200, 200, 503, 200)).encode()

    assert [each.accepted for each in read(whole, "") if each] == [True, True, False, True]
    assert {each.error_class for each in read(whole[:-5], "") if each} == {"UnclearResults"}


@pytest.mark.parametrize("code", [400, 413, 422, 431])
def test_a_refusal_that_one_item_may_cause_is_retried_in_halves(code: int) -> None:
    """A refused batch request is retried in halves, so that no item fails because of another."""
    assert read_response(refused(code), ResponseContent(b""), IDS) == ((None,) * 4, 2)
    assert read_response(refused(code), ResponseContent(b""), IDS[:3]) == ((None,) * 3, 2)
    assert read_response(refused(code), ResponseContent(b""), IDS[:1]) == ((refused(code),), None)
    assert (
        read_response(refused(code, abort=True), ResponseContent(b""), IDS).responses
        == (refused(code, abort=True),) * 4
    )


@pytest.mark.parametrize("code", [302, 401, 403, 404, 408, 410, 429, 500, 503, None])
def test_any_other_response_is_everybodys(code: int | None) -> None:
    """Any other response applies to every delivery, whatever its body says."""
    response = refused(code, error_class=None if code else "Timeout")

    assert read_response(response, said({INDEX: 4}), IDS).responses == (response,) * 4


STATUS = st.one_of(st.integers(-1, 700), st.booleans(), st.floats(), st.text(max_size=3), st.none())
ENTRY = st.one_of(
    st.fixed_dictionaries({}, optional={"status": STATUS, "id": st.sampled_from([*IDS, "x", 1, None])}), STATUS
)
BODY = st.one_of(
    st.fixed_dictionaries(
        {}, optional={INDEX: st.one_of(st.integers(-2, 6), STATUS), RESULTS: st.lists(ENTRY, max_size=6)}
    ),
    st.recursive(STATUS, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([INDEX, RESULTS]), inner)),
)


@given(BODY, st.sampled_from([200, 207]), st.integers(0, 40))
def test_of_any_body_only_what_it_surely_says_is_delivered(body: Any, code: int, cut: int) -> None:
    """For any body each delivery has one result, and only items that the body names or counts are delivered."""
    text = json.dumps(body).encode()
    for part in (text, text[:cut]):
        responses = read_response(taken(code), ResponseContent(part, JSON), IDS).responses
        delivered = {n for n, each in enumerate(responses) if each is not None and each.accepted}

        assert len(responses) == 4
        assert delivered <= _surely(part, code)


def _surely(text: bytes, code: int) -> set[int]:
    """Return the indexes of the items that a response may report as delivered, read independently of the code."""
    everybody = {0, 1, 2, 3}
    if not text.strip():
        return set() if code == 207 else everybody
    try:
        body = json.loads(text)
    except ValueError:
        return set()
    if not isinstance(body, dict) or not {INDEX, RESULTS} & body.keys():
        return set() if code == 207 else everybody
    if INDEX in body:
        index = body[INDEX]
        return set(range(index)) if RESULTS not in body and type(index) is int and 0 <= index <= 4 else set()
    entries = body[RESULTS]
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        return set()
    good = [type(each.get("status")) is int and 200 <= each["status"] < 300 for each in entries]
    if all("id" in each for each in entries):
        return {
            IDS.index(each["id"]) for each, is_good in zip(entries, good, strict=True) if is_good and each["id"] in IDS
        }
    return {n for n, is_good in enumerate(good) if is_good} if len(entries) == 4 else set()
