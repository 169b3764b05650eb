"""If a connection changes while events arrive, both modes use the new credentials, and nothing is lost.

In streaming mode connections are remembered for a while, as a task of Airflow's that stays does.
"""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

import pytest
from pipeline.delivering import RUNNER, RunningClock, Sending, http, settled
from pipeline.modes import deliver_all, deliver_one_batch
from pipeline.streaming_tasks import a_streaming_task, crm_requests, until

from eventbridge.airflow.connections import CachedConnections
from eventbridge.config.connection import connections_from_environment
from eventbridge.repair.audit import audit
from eventbridge.runtime.runtime import Runtime

NAME = "EVENTBRIDGE_CONN_CRM"
#: Longer than a test: what was remembered is only looked up again because it was refused.
_SECONDS = 3_600.0


@pytest.fixture
def connections() -> dict[str, str]:
    """The connections as a test changes them."""
    return {}


@pytest.fixture
def runtime(sending: Sending, connections: dict[str, str]) -> Runtime:
    """The runtime with these connections, remembered in streaming mode."""
    look_up = connections_from_environment(connections)
    return replace(
        sending.runtime, connections=CachedConnections(_SECONDS, look_up) if sending.mode == "streaming" else look_up
    )


@pytest.fixture
def streaming(sending: Sending, connections: dict[str, str]) -> Sending:
    """The installation, opened with these connections, cached as in a streaming task in both modes."""
    found = sending.runtime
    cached = CachedConnections(_SECONDS, connections_from_environment(connections))
    sending.site.works[-1] = replace(found, connections=cached)
    return sending


def test_a_changed_token_counts_from_the_next_batch_on(
    sending: Sending, runtime: Runtime, connections: dict[str, str], clock: RunningClock
) -> None:
    """It costs no attempt, also where the old one is remembered; what was refused before comes with a retry."""
    known, crm = (http(url, connection="crm") for url in ("/healthy/known", "/guarded/fresh"))
    sending.rules(known=known, crm=crm)
    connections[NAME] = "http://?token=stale&any_host=true"
    sending.publish(1)
    deliver_all(runtime, RUNNER, sending.mode)
    connections[NAME] = "http://?token=fresh&any_host=true"
    sending.publish(1)
    batch_id = deliver_one_batch(runtime, RUNNER, sending.mode)
    assert batch_id is not None
    [second] = settled(runtime, batch_id)["crm"]
    clock.advance(2 * 3600)  # an hour, and its jitter
    deliver_all(runtime, RUNNER, sending.mode)

    assert (second.status, second.attempts) == ("delivered", 1)
    responses = [each["status"] for each in sending.requests() if each["path"] == "/guarded/fresh"]
    assert set(responses[:-2]) == {401}
    assert responses[-2:] == [200, 200]
    assert runtime.ledger.pending.counts() == []
    assert audit(runtime).differences == ()


def test_a_client_whose_secret_is_changed_gets_tokens_by_the_new_one(
    sending: Sending, runtime: Runtime, connections: dict[str, str]
) -> None:
    """OAuth2: the token that it has is used up, and the endpoint knows only the new secret: no attempt fails."""
    connections[NAME] = client(sending, "early")
    sending.rules(crm=http("/with-token/1/crm", connection="crm"))
    sending.publish(1)
    deliver_all(runtime, RUNNER, sending.mode)
    connections[NAME] = client(sending, "later")
    sending.publish(1)
    batch_id = deliver_one_batch(runtime, RUNNER, sending.mode)
    assert batch_id is not None

    [second] = settled(runtime, batch_id)["crm"]
    assert (second.status, second.attempts) == ("delivered", 1)
    assert [each["path"] for each in sending.requests()][-1] == "/with-token/1/crm"
    assert "/token/600/later/crm" in {each["path"] for each in sending.requests()}
    assert audit(runtime).differences == ()


def test_a_run_of_a_streaming_task_renews_its_credentials_more_than_once(
    streaming: Sending, connections: dict[str, str], clock: RunningClock
) -> None:
    """A token is good for four requests: each time that it is refused the same attempt is made with a new one."""
    connections[NAME] = client(streaming, "secret")
    streaming.rules(crm=http("/with-token/4/crm", connection="crm"))
    with a_streaming_task(streaming):
        for number in range(1, 11):
            streaming.publish(1)
            until(lambda number=number: len(accepted(streaming)) >= number)
            clock.advance(1.6)  # a run that has had nothing to do for two seconds ends

    assert len(accepted(streaming)) == 10
    assert audit(streaming.runtime).differences == ()


def client(sending: Sending, secret: str) -> str:
    """Return a connection with an OAuth2 client whose endpoint knows its secret alone."""
    token_url = quote(sending.receiver.url(f"/token/600/{secret}/crm"), safe="")
    return f"http://shop:{secret}@?any_host=true&token_url={token_url}"


def accepted(streaming: Sending) -> list[object]:
    """Return what the target took."""
    return [each for each in crm_requests(streaming) if each["path"] == "/with-token/4/crm" and each["status"] == 200]
