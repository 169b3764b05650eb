"""The addresses that an HTTP target connects to are checked when it connects, whatever name led there."""

from __future__ import annotations

import uuid
from contextlib import closing
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path

import pycurl
import pytest
from demo.receiver import Receiver

from eventbridge.config.connection import Connection
from eventbridge.config.settings import Settings
from eventbridge.model.outcome import Response, RetryAt
from eventbridge.policy.response_to_outcome import RetryTerms, decide
from eventbridge.rules.model import RetryPolicy
from eventbridge.targets.http.endpoint import Endpoint
from eventbridge.targets.http.exchange import Exchange
from eventbridge.targets.http.fields import HttpFields
from eventbridge.targets.open import open_target
from eventbridge.targets.protocol import Request
from eventbridge.targets.ssrf_guard import SsrfGuard


def guard(*blocks: str) -> SsrfGuard:
    return SsrfGuard([ip_network(block) for block in blocks])


def now() -> datetime:
    return datetime.now(UTC)


def response_of(url: str, *blocks: str) -> Response:
    def no_connection(connection_id: str) -> Connection:
        raise AssertionError(f"unexpected look-up of {connection_id}")

    rule = HttpFields(name="crm", url=url, allow_http=True, timeout_seconds=5.0)
    with closing(open_target("r", rule, no_connection, now, [ip_network(block) for block in blocks])) as target:
        request = Request(0, str(uuid.uuid4()), b"{}", "application/json")
        [(_, response)] = target.deliver([request], now() + timedelta(seconds=30))
        return response


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1", "a loopback address"),
        ("127.255.0.9", "a loopback address"),
        ("0.0.0.0", "the unspecified address"),
        ("0.0.0.9", "a private address"),
        ("10.0.0.1", "a private address"),
        ("172.16.0.1", "a private address"),
        ("192.168.1.1", "a private address"),
        ("169.254.1.1", "a link-local address"),
        ("169.254.169.254", "a cloud's metadata address"),
        ("168.63.129.16", "a cloud's metadata address"),
        ("100.64.0.1", "not a public address"),
        ("100.100.100.200", "not a public address"),
        ("192.0.0.192", "not a public address"),
        ("192.0.0.1", "not a public address"),
        ("192.88.99.1", "not a public address"),
        ("198.18.0.1", "a private address"),
        ("224.0.0.1", "a multicast address"),
        ("239.1.2.3", "a multicast address"),
        ("240.0.0.1", "a private address"),
        ("255.255.255.255", "a private address"),
        ("::", "the unspecified address"),
        ("::1", "a loopback address"),
        ("fe80::1", "a link-local address"),
        ("fe80::1%eth0", "a link-local address"),
        ("fc00::1", "a private address"),
        ("fd00:ec2::254", "a private address"),
        ("fec0::1", "not a public address"),
        ("ff02::1", "a multicast address"),
        ("ff0e::1", "a multicast address"),
        ("2001:db8::1", "a private address"),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "a private address"),
        ("3fff::1", "not a public address"),
        ("4000::1", "not a public address"),
        ("::ffff:127.0.0.1", "carries 127.0.0.1, a loopback address"),
        ("::ffff:169.254.169.254", "carries 169.254.169.254, a cloud's metadata address"),
        ("::ffff:0:10.0.0.1", "carries 10.0.0.1, a private address"),
        ("::10.0.0.1", "carries 10.0.0.1, a private address"),
        ("64:ff9b::10.0.0.1", "carries 10.0.0.1, a private address"),
        ("64:ff9b::a9fe:a9fe", "carries 169.254.169.254, a cloud's metadata address"),
        ("64:ff9b:1::a9fe:a9fe", "address"),
        ("2002:7f00:1::", "carries 127.0.0.1, a loopback address"),
        ("2002:a9fe:a9fe::1", "carries 169.254.169.254, a cloud's metadata address"),
    ],
)
def test_an_address_inside_is_refused(address: str, said: str) -> None:
    """Every form of an address that is not public is refused, and called what it is."""
    refusal = guard().refusal(address)

    assert refusal is not None
    assert refusal.startswith(address)
    assert refusal.endswith(said)


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::808:808", "2002:808:808::1"],
)
def test_a_public_address_is_not_refused(address: str) -> None:
    """Whatever anybody on the Internet can reach; an address that carries a public one too."""
    assert guard().refusal(address) is None


@pytest.mark.parametrize(
    ("block", "address", "allowed"),
    [
        ("127.0.0.0/8", "127.0.0.1", True),
        ("127.0.0.0/8", "::ffff:127.0.0.1", True),
        ("127.0.0.0/8", "64:ff9b::127.0.0.1", True),
        ("127.0.0.0/8", "::1", False),
        ("::1/128", "::1", True),
        ("10.1.0.0/16", "10.2.0.1", False),
        ("0.0.0.0/0", "169.254.169.254", True),
        ("64:ff9b::/96", "64:ff9b::10.0.0.1", True),
        ("fd00::/8", "fd12::1", True),
    ],
)
def test_a_block_that_is_allowed(block: str, address: str, allowed: bool) -> None:
    """A block allows the addresses in it, also where they are carried in another, and no others."""
    assert (guard(block).refusal(address) is None) == allowed


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "0.0.0.0"])
def test_nothing_is_sent_inside_by_whatever_name(receiver: Receiver, host: str) -> None:
    """A name, a number, an address in IPv6: no connection is made, and the response names the setting."""
    response = response_of(f"http://{host}:{receiver.port}/healthy/inside")

    assert (response.accepted, response.code, response.error_class) == (False, None, "AddressRefused")
    assert "unless EVENTBRIDGE_ALLOW_ADDRESSES lists its address block" in (response.error or "")
    assert receiver.requests() == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
def test_an_allowed_address_is_delivered_to(tmp_path: Path, host: str) -> None:
    """With its block allowed the same address is one like any other; one that is refused beside it does not matter."""
    with Receiver(tmp_path / "log.jsonl") as receiver:
        response = response_of(f"http://{host}:{receiver.port}/healthy", "127.0.0.0/8")

        assert (response.code, len(receiver.requests())) == (200, 1)


def test_a_name_that_leads_inside_later_is_refused_then(receiver: Receiver) -> None:
    """A name that led to an allowed address and leads to another the next moment gets there never (DNS rebinding)."""
    endpoint = Endpoint(f"http://rebind.example:{receiver.port}/healthy", 5.0, True, guard("127.0.0.2/32"))
    exchange = Exchange(endpoint)
    responses = []
    for address in ("127.0.0.2", "127.0.0.1"):
        exchange.curl.setopt(
            pycurl.RESOLVE, [f"-rebind.example:{receiver.port}", f"rebind.example:{receiver.port}:{address}"]
        )
        exchange.started_at = now()
        exchange.prepare([], b"{}")
        with pytest.raises(pycurl.error) as caught:
            exchange.curl.perform()
        responses.append(exchange.response(*caught.value.args))
        exchange.forget()
    exchange.close()

    assert [response.error_class for response in responses] == ["ConnectionRefused", "AddressRefused"]
    assert "127.0.0.1 is a loopback address" in (responses[1].error or "")
    assert receiver.requests() == []


def test_a_refused_address_is_tried_again_by_policy() -> None:
    """Nothing is lost while the setting is wrong: the delivery waits as for any target that cannot be reached."""
    response = Response(False, now(), 0.0, error_class="AddressRefused", error="10.0.0.1 is a private address")
    outcome = decide(
        response,
        RetryTerms(RetryPolicy(), timeout_seconds=10.0),
        attempts=1,
        arrived_at=now(),
        on_hold_seconds=0.0,
        now=now(),
        draw=0.5,
    )

    assert isinstance(outcome, RetryAt)
    assert outcome.reason == "AddressRefused"


def test_blocks_are_read_from_the_setting() -> None:
    """Blocks and single addresses, separated by commas or spaces; host bits do not count."""
    settings = Settings.from_mapping({"EVENTBRIDGE_ALLOW_ADDRESSES": "127.0.0.1/8, fd00::/8 10.1.2.3"})

    assert list(map(str, settings.allow_addresses)) == ["127.0.0.0/8", "fd00::/8", "10.1.2.3/32"]
