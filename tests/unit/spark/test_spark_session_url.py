from __future__ import annotations

import uuid

import pytest

from eventbridge.spark.session import session_id, session_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sc://host:15002", "sc://host:15002/;session_id=S"),
        ("sc://host:15002/", "sc://host:15002/;session_id=S"),
        ("sc://host/;token=t;use_ssl=true", "sc://host/;token=t;use_ssl=true;session_id=S"),
        ("sc://host/;session_id=old;user_id=u", "sc://host/;user_id=u;session_id=S"),
    ],
)
def test_a_url_gets_its_session(url: str, expected: str) -> None:
    """The session id is appended to the connection's URL, in place of an existing one."""
    assert session_url(url, "S") == expected


def test_a_runner_has_the_same_session_for_ever() -> None:
    """Ids depend on runner and generation alone, and are UUIDs."""
    ids = [session_id("orders"), session_id("returns"), session_id("orders", 1)]

    assert len(set(ids)) == 3
    assert ids[0] == session_id("orders", 0) == str(uuid.UUID(ids[0]))
