"""A pattern from a caller costs a bounded amount of work, which ends when the caller disconnects."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from api.pages import OWN
from api.server import Installation, Server, order

from eventbridge.api.call_pools import MAX_RUNNING
from eventbridge.bounded_call import call_bounded
from eventbridge.control.try_pattern import MAX_CHARACTERS
from eventbridge.event.json_document import parse_document
from eventbridge.matching import compile_rules
from eventbridge.matching.pattern import parse_pattern
from eventbridge.matching.reference import explain, matches
from eventbridge.processes import Cancelled, TimeSpent, cancelled, time_limit
from eventbridge.rules.bounds import MAX_BYTES, MAX_VALUES

#: Long enough for a busy machine, and far less than the endless pattern takes.
SOON = 20.0


def nested(levels: int) -> dict[str, Any]:
    """Return a pattern whose size doubles with each level of `$or`."""
    pattern: dict[str, Any] = {"data": {"a": ["x"]}}
    for _ in range(levels):
        pattern = {"$or": [pattern, pattern]}
    return pattern


def wide(fields: int) -> dict[str, Any]:
    """Return a pattern of so many fields."""
    return {"data": {str(number): ["x"] for number in range(fields)}}


#: Each is larger than a pattern that is sent may be, in depth, fields or bytes.
TOO_LARGE = {
    "nested": nested(13),
    "fields": wide(MAX_VALUES // 2),
    "values": {"data": {"a": [str(number) for number in range(MAX_VALUES)]}},
    "bytes": {"data": {"a": ["x" * MAX_BYTES]}},
}


def endless() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a pattern, and an event with which it takes hours: pigeons, of which no two may be in one hole.

    Each pigeon is an array, its holes are the elements. There is a hole too few, and only trying all choices shows it.
    """
    holes = range(9)
    pairs = list(itertools.combinations(range(10), 2))
    event: dict[str, Any] = {f"p{pigeon}": [{"h": hole} for hole in holes] for pigeon in range(10)}
    pattern: dict[str, Any] = {}
    for depth, (one, other) in enumerate(pairs):
        apart = [
            {f"p{one}": {"h": [hole]}, f"p{other}": {"h": [each for each in holes if each != hole]}} for hole in holes
        ]
        for _ in range(depth):
            apart = [{"d": each} for each in apart]
        pattern = {"d": pattern, "$or": apart} if pattern else {"$or": apart}
    for _ in pairs[1:]:
        event = {"d": event}
    return {"data": pattern}, order(1, data=event)


@pytest.fixture(scope="module")
def reading(server: Server) -> Iterator[httpx.Client]:
    """A client with the scope read, which is logged in to the page too."""
    token = server.installation.token("reading", "read")
    with server.client(token) as opened:
        opened.timeout = httpx.Timeout(120)
        opened.headers["connection"] = "close"  # the server may close one whose body it refused unread
        opened.post("/page/login", data={"token": token}, headers=OWN)
        yield opened


@pytest.mark.parametrize("kind", TOO_LARGE)
def test_a_pattern_that_is_too_large_is_refused(kind: str, reading: httpx.Client) -> None:
    """The call that tries a pattern, and the form of the page, say how large it may be."""
    form = reading.get("/page/rules/all-orders/test").text
    key = form.partition('name="key" value="')[2].partition('"')[0]
    call = {"event": order(1), "pattern": TOO_LARGE[kind]}
    sent = {"key": key, "pattern": json.dumps(TOO_LARGE[kind], separators=(",", ":")), "body": json.dumps(order(1))}
    responses = [
        reading.post("/v1/rules/all-orders/test", json=call),
        reading.post("/page/rules/all-orders/test", data=sent, headers=OWN),
    ]

    assert [(each.status_code, "the limit for" in each.text) for each in responses] == [
        (400, True),
        (200, True),
    ]


@pytest.mark.parametrize("kind", TOO_LARGE)
def test_a_replay_takes_no_larger_pattern(kind: str, server: Server) -> None:
    """A dry run, which looks through the archive, refuses it before that."""
    token = server.installation.token(f"replaying-{kind}", "read", "operate", "payloads")
    call = {"bus": "orders", "from": "1h", "dry_run": True, "pattern": TOO_LARGE[kind]}
    with server.client(token) as client:
        response = client.post("/v1/replays", json=call, timeout=120)

    assert (response.status_code, "the limit for" in response.text) == (400, True)


def test_an_explanation_grows_as_its_pattern_does() -> None:
    """A sub-pattern is not repeated at each level above it: the report per character does not grow."""
    reported = {}
    for levels in (7, 11):
        text = json.dumps(nested(levels))
        findings = explain(parse_pattern(text), parse_document(json.dumps(order(1))))
        reported[levels] = sum(len(each.condition) + len(each.message) for each in findings) / len(text)

    assert reported[11] < 1.25 * reported[7]


def test_a_response_is_bounded(reading: httpx.Client) -> None:
    """Many conditions that look at one long value do not make a response of gigabytes."""
    pattern = {"$or": [{"data": {"a": [str(number)]}} for number in range(5_000)]}
    call = {"event": order(1, data={"a": "x" * 500_000}), "pattern": pattern}
    response = reading.post("/v1/rules/all-orders/test", json=call)

    assert (response.status_code, f"more than {MAX_CHARACTERS:,} characters" in response.text) == (400, True)


def test_time_ends_the_search_of_a_pattern_through_arrays() -> None:
    """Processor time is limited also where the size of pattern and event says nothing of it."""
    pattern, event = endless()
    with pytest.raises(TimeSpent, match="more than 1 s of processor time"):
        call_bounded(matches, pattern, json.dumps(event), seconds=1.0, remedy="Send less")


SLOW = {
    "many values": (
        {"data": {"a": [{"wildcard": f"*y{number}*z*"} for number in range(1_000)]}},
        {"data": {"a": [f"x{number:05}" for number in range(4_000)]}},
    ),
    "one long value": (
        {"data": {"a": [{"equals-ignore-case": f"x{number}"} for number in range(1_500)]}},
        {"data": {"a": "\u0130" * 450_000}},
    ),
}


@pytest.mark.parametrize("kind", SLOW)
def test_the_reference_matcher_ends_at_the_time_limit_of_its_call(kind: str) -> None:
    """It runs in the server itself for the preview of a replay, on the few events that are handed to it."""
    pattern, document = parse_pattern(SLOW[kind][0]), parse_document(json.dumps(SLOW[kind][1]))
    began = time.monotonic()
    with pytest.raises(TimeSpent), time_limit(0.1):
        matches(pattern, document)

    assert time.monotonic() - began < 5


def test_the_compiled_matcher_ends_with_its_call() -> None:
    """A block of events is matched in milliseconds, an archive is not."""
    matcher = compile_rules([parse_pattern({"type": ["a"]})])
    stop = threading.Event()
    stop.set()
    before = cancelled.set(stop)
    try:
        with pytest.raises(Cancelled):
            matcher.match(pa.array([json.dumps(order(1))]))
    finally:
        cancelled.reset(before)


def test_a_pattern_that_takes_too_long_is_refused(reading: httpx.Client) -> None:
    """A caller that stays connected gets the reason."""
    pattern, event = endless()
    response = reading.post("/v1/rules/all-orders/test", json={"event": event, "pattern": pattern})

    assert (response.status_code, "10 s of processor time" in response.text) == (400, True)


def test_work_with_a_pattern_ends_when_its_caller_leaves(tmp_path: Path) -> None:
    """The places for expensive calls are free again at once, not when the time limit is over."""
    pattern, event = endless()

    def leave(client: httpx.Client) -> None:
        with suppress(httpx.ReadTimeout):
            client.post("/v1/rules/all-orders/test", json={"event": event, "pattern": pattern}, timeout=3)

    with Server(Installation(tmp_path)) as server:
        # the limit is on processor time: ten calls would hold the two places for 50 s
        tokens = [server.installation.token(f"leaving{number}", "read") for number in range(5 * MAX_RUNNING)]
        clients = [server.client(token) for token in tokens]
        threads = [threading.Thread(target=leave, args=(client,)) for client in clients]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        before = time.monotonic()
        response = clients[0].post("/v1/rules/all-orders/test", json={"event": order(1)}, timeout=60)
        took = time.monotonic() - before
        for client in clients:
            client.close()

    assert response.status_code == 200
    assert took < SOON
