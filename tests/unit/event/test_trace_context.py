"""What of the trace context that an event brings is passed on."""

from __future__ import annotations

import pytest

from eventbridge.event.trace_context import forwarded_state, trace_headers

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

MANY = ",".join(f"k{number}=v" for number in range(33))
LONG = "a=" + "x" * 257


def test_both_headers_are_passed_on() -> None:
    """`tracestate` goes with `traceparent`, and never without one."""
    assert trace_headers({"traceparent": PARENT, "tracestate": "a=1"}) == {"traceparent": PARENT, "tracestate": "a=1"}
    assert trace_headers({"traceparent": PARENT}) == {"traceparent": PARENT}
    assert trace_headers({"traceparent": f"{PARENT}\n", "tracestate": "a=1"}) == {}
    assert trace_headers({"traceparent": 7, "tracestate": "a=1"}) == trace_headers({"tracestate": "a=1"}) == {}


@pytest.mark.parametrize(
    ("brought", "passed"),
    [
        ("vendor=1", "vendor=1"),
        ("a=1 2, fw529a3039@dt=FfAu , 0x/*-_=~!", "a=1 2,fw529a3039@dt=FfAu,0x/*-_=~!"),
        (",a=1,,\t", "a=1"),
        (",".join(f"k{number}=v" for number in range(32)), ",".join(f"k{number}=v" for number in range(32))),
    ],
)
def test_a_state_is_passed_on(brought: str, passed: str) -> None:
    """Members keep their order; empty ones and white space around them go."""
    assert forwarded_state(brought) == passed


@pytest.mark.parametrize(
    "brought",
    [
        "",
        " ",
        "a",
        "a=",
        "=1",
        "A=1",
        "a=1,a=2",
        "a=1\r\nevil: 1",
        "a=é",
        "a=1=2",
        "a@b@c=1",
        7,
        None,
        True,
        MANY,
        LONG,
    ],
)
def test_an_invalid_trace_state_is_not_passed_on(brought: object) -> None:
    """One member that is wrong, or a key twice, drops all of it."""
    assert forwarded_state(brought) is None


def test_a_long_state_is_cut_between_members() -> None:
    """At most 512 characters are passed on: members of more than 128 are dropped first, then the last ones."""
    long = "long=" + "x" * 200
    short = [f"k{number}={'v' * 40}" for number in range(20)]

    passed = forwarded_state(",".join([long, *short]))

    assert passed is not None
    assert passed.split(",") == short[: len(passed.split(","))]
    assert 512 - 45 < len(passed) <= 512
