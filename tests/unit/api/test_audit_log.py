"""Recorded actions are described in words, whichever way they came."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from eventbridge.model.api import OperatorAction
from eventbridge.views.audit_log import audit_line


@pytest.mark.parametrize(
    ("by", "call", "asked", "status", "wanted"),
    [
        (
            *("page, ann", "POST /page/rules/refunds/operate", '{"action": "pause target", "target": "ledger"}', 200),
            ("pause target", "refunds/ledger", "ann", "page", "done"),
        ),
        ("token ci", "POST /v1/rules/refunds/pause", "", 200, ("pause rule", "refunds", "token ci", "API", "done")),
        ("token ci", "PUT /v1/rules/r/priority", "{}", 400, ("set priority rule", "r", "token ci", "API", "refused")),
        (
            *("command, ann@host", "eventbridge targets", '{"arguments": ["targets", "pause", "refunds/ledger"]}', 0),
            ("pause target", "refunds/ledger", "ann@host", "command", "done"),
        ),
        (
            *("Airflow, bo", "DAG eventbridge_redrive_dead_letters", '{"rule": "refunds"}', 1),
            ("redrive dead letters", "refunds", "bo", "Airflow", "failed"),
        ),
        (
            *("page, ann", "POST /page/replay", '{"bus": "orders", "only": "refunds/ledger"}', None),
            ("start replay", "refunds/ledger", "ann", "page", "no result"),
        ),
        ("token x", "POST /v1/replays", "[" * 9_999, 201, ("start replay", "", "token x", "API", "done")),
    ],
)
def test_an_action_is_described(
    by: str, call: str, asked: str, status: int | None, wanted: tuple[str, str, str, str, str]
) -> None:
    """What was done, on what, by whom, by which way, and with which result; a request that cannot be read is none."""
    line = audit_line(OperatorAction(1, datetime(2026, 11, 30, tzinfo=UTC), by, call, asked, status))

    assert (line.what, line.on, line.who, line.way, line.result) == wanted
    assert line.contains([wanted[0].upper(), wanted[4]])
    assert not line.contains(["nobody"])
