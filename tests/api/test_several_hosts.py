"""Two servers on one ledger in PostgreSQL: tokens, responses and buses are the same on both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from api.server import Installation, Server, order
from services.postgresql import Postgresql

PATH = "/v1/buses/orders/events"
BATCHED = {"content-type": "application/cloudevents-batch+json"}
QUOTA = """
owners: {desk: {published: 1/s}}
buses: {tight: {owner: desk, source: {type: embedded}}}
"""


@pytest.fixture
def made(postgresql_server: Postgresql, tmp_path: Path) -> Iterator[Installation]:
    """An installation with its ledger in a PostgreSQL server."""
    url = postgresql_server.new_database()
    installation = Installation(tmp_path, EVENTBRIDGE_LEDGER_URL=url)
    installation.run("ledger", "migrate")
    yield installation
    postgresql_server.drop_database(url)


def test_two_servers_act_as_one(made: Installation) -> None:
    """Events of both have distinct positions on one bus, and a call repeated at the other gets the first response.

    They share the quota of an owner: once one server has used it up, the other refuses.
    """
    (made.folder / "rules" / "desk.yaml").write_text(QUOTA)
    with Server(made) as one, Server(made) as two:
        token = made.token("shop", "publish:orders", "publish:tight")
        with one.client(token) as first, two.client(token) as second:
            responses = [
                client.post(PATH, json=[order(id=f"{turn}-{name}") for name in "abc"], headers=BATCHED)
                for turn, client in enumerate((first, second) * 3)
            ]
            keyed = BATCHED | {"idempotency-key": "once"}
            repeated = [client.post(PATH, json=[order(100)], headers=keyed) for client in (first, second)]
            whole = [order(number) for number in range(50)]
            published = [
                client.post("/v1/buses/tight/events", json=whole, headers=BATCHED).status_code
                for client in (first, second)
            ]
        ends = [server.end() for server in (one, two)]

    assert [response.status_code for response in responses] == [200] * 6
    results = [result for response in responses for result in response.json()["results"]]
    assert len({(each["partition"], each["offset"]) for each in results}) == 18
    assert repeated[0].json() == repeated[1].json()
    assert [response.headers.get("idempotency-replayed") for response in repeated] == [None, "true"]
    assert published == [200, 429]
    assert ends == [(0, ""), (0, "")]
