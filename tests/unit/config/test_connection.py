"""Connections: Airflow's URI and JSON forms, by name from the environment, never shown."""

from __future__ import annotations

import pytest

from eventbridge.config.connection import Connection, connections_from_environment
from eventbridge.errors import ConnectionUnusable


def fields(connection: Connection) -> tuple[object, ...]:
    """Return everything but the id."""
    c = connection
    return c.type, c.host, c.port, c.login, c.password, c.schema, dict(c.extra)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "http://u:p%40@Host.example:8080/sch%2Fx?signing_secret=whsec_abc%3D",
            ("http", "host.example", 8080, "u", "p@", "sch/x", {"signing_secret": "whsec_abc="}),
        ),
        ("http://?signing_secret=a", ("http", "", None, "", "", "", {"signing_secret": "a"})),
        ("http://https://u:p@h.example:443/x", ("http", "https://h.example", 443, "u", "p", "x", {})),
        ("spark-connect://127.0.0.1:15002", ("spark_connect", "127.0.0.1", 15002, "", "", "", {})),
        ("spark://spark%3A%2F%2FMaster:7077", ("spark", "spark://Master", 7077, "", "", "", {})),
        ("http://[::1]:80/x", ("http", "::1", 80, "", "", "x", {})),
        ("http://:pw@", ("http", "", None, "", "pw", "", {})),
        ("generic:///path", ("generic", "", None, "", "", "path", {})),
        ("a://h/?__extra__=%7B%22a%22%3A%20%7B%22b%22%3A1%7D%7D", ("a", "h", None, "", "", "", {"a": {"b": 1}})),
        (
            '{"conn_type": "http", "host": "h", "port": "80", "login": "u", "extra": {"a": 1}}',
            ("http", "h", 80, "u", "", "", {"a": 1}),
        ),
        ('{"conn_type": "http", "extra": "{\\"a\\": 1}"}', ("http", "", None, "", "", "", {"a": 1})),
    ],
)
def test_connection_is_read_as_airflow_reads_it(text: str, expected: tuple[object, ...]) -> None:
    """The expected values are those of airflow.models.connection.Connection, version 3.3.2, for the same text."""
    assert expected == fields(Connection.from_text("c", text))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("hunter2", "it is not a URI"),
        ("://hunter2", "it is not a URI"),
        ("http://u:hunter2/x@h", "its host or port is malformed (perhaps a / or @ in the password is not escaped)"),
        ("http://h:hunter2", "its host or port is malformed (perhaps a / or @ in the password is not escaped)"),
        ("http://[hunter2", "its host or port is malformed (perhaps a / or @ in the password is not escaped)"),
        (
            "http://u:hunter2@https://h",
            "'://' may occur at most twice, the second time after the host's protocol",
        ),
        ("http://h/?__extra__=hunter2", "its extra is not JSON"),
        ("http://h/?__extra__=[1]", "its extra is not a JSON object"),
        ('{"conn_type": "hunter2', "it begins like JSON but is not JSON (Unterminated string starting at)"),
        ('{"login": "hunter2"}', "conn_type is missing"),
        ('{"conn_type": "a", "typo": "hunter2"}', "unknown field 'typo' of a connection"),
        ('{"conn_type": "a", "port": "hunter2"}', "its port is not a number"),
        ('{"conn_type": "a", "extra": ["hunter2"]}', "its extra is not a JSON object"),
    ],
)
def test_text_that_cannot_be_read_is_refused_without_showing_it(text: str, why: str) -> None:
    """The message says what is wrong and how to write it, and repeats nothing of the text."""
    with pytest.raises(ConnectionUnusable) as caught:
        Connection.from_text("c", text)

    assert str(caught.value).startswith(f"Connection 'c' cannot be read: {why}. Write type://login")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_connections_come_from_the_environment_by_name() -> None:
    """EVENTBRIDGE_CONN_<ID> with the id in upper case."""
    connection = connections_from_environment({"EVENTBRIDGE_CONN_CRM_HOOKS": "http://u:p@h"})

    assert Connection(id="crm_hooks", type="http", host="h", login="u", password="p") == connection("crm_hooks")


def test_connection_that_is_not_defined() -> None:
    """The message names the variable to set and the nearest one that is."""
    connection = connections_from_environment({"EVENTBRIDGE_CONN_CRM_HOOKS": "http://h", "EVENTBRIDGE_CONN_EMPTY": ""})

    with pytest.raises(ConnectionUnusable) as caught:
        connection("crm_hook")
    assert str(caught.value) == (
        "Connection 'crm_hook' is not defined: set EVENTBRIDGE_CONN_CRM_HOOK to its URI. "
        "Only tasks in Airflow read the connections of Airflow. Did you mean 'crm_hooks'?"
    )
    with pytest.raises(ConnectionUnusable, match="'empty' is not defined"):
        connection("empty")
    with pytest.raises(ConnectionUnusable, match=r"of Airflow\.$"):
        connections_from_environment({})("crm_hooks")


def test_no_secret_is_shown() -> None:
    """Neither login, password nor extra are in a connection's text."""
    connection = Connection.from_text("c", "http://hunter1:hunter2@h?signing_secret=hunter3")

    assert "hunter" not in f"{connection!r} {connection}"
