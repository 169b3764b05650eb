"""A hanging OAuth2 endpoint fails the deliveries of the targets that need its tokens, and delays no other target."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

import pytest
from pipeline.delivering import RUNNER, Sending, http, settled
from pipeline.modes import deliver_one_batch

from eventbridge.config.connection import connections_from_environment

#: More targets than calls are made at a time.
MANY = 150


@pytest.mark.parametrize("path", ["/hang/token", "/drip/token"])
def test_other_targets_do_not_wait_for_a_token_endpoint(sending: Sending, path: str) -> None:
    """150 targets share a client whose endpoint hangs, or sends a byte at a time; one with another gets all."""

    def client(name: str, endpoint: str) -> str:
        token_url = quote(sending.receiver.url(endpoint), safe="")
        return f"http://shop-{name}:hushhush@?any_host=true&token_url={token_url}"

    environ = {
        "EVENTBRIDGE_CONN_HANGING": client("hanging", path),
        "EVENTBRIDGE_CONN_HEALTHY": client("healthy", "/token/600/hushhush/healthy"),
    }
    hanging = {f"a{number:03}": http("/with-token/9/none", connection="hanging") for number in range(MANY)}
    sending.rules(**hanging, z=http("/with-token/1000/crm", connection="healthy"), plain="/healthy/plain")
    runtime = replace(sending.runtime, connections=connections_from_environment(environ))
    sending.publish(2)

    batch_id = deliver_one_batch(runtime, RUNNER, sending.mode)

    assert batch_id is not None
    found = settled(runtime, batch_id)
    for name in ("z", "plain"):
        assert [(row.status, row.attempts) for row in found[name]] == [("delivered", 1)] * 2, name
    assert {row.status for name in hanging for row in found[name]} == {"retry_scheduled"}
    asked = [each for each in sending.requests() if each["path"] == path]
    assert len(asked) <= 2, "each takes a second, in which calls of other targets wait"
