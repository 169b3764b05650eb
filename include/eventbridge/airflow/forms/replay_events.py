"""The form of the DAG `eventbridge_replay_events`."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from eventbridge.airflow.forms.choices import ALL, NO_CHOICES, Choices, choosing, proposing


def replay_params(propose: Choices = NO_CHOICES) -> dict[str, Param]:
    """Return the form of the DAG: the events, rules and targets, and how to deliver.

    The first task checks required fields, as a replay that continues needs none of them.
    """
    text = ["null", "string"]
    lists: dict[str, Any] = {"items": {"type": "string"}}
    return {
        "bus": Param(
            "",
            type="string",
            **proposing(propose.buses),
            title="Bus",
            description="The bus whose archive is replayed. Required.",
        ),
        "from": Param(
            None,
            type=text,
            format="date-time",
            title="From",
            description="Events landed at or after this time. Required, except to continue a replay.",
        ),
        "to": Param(
            None, type=text, format="date-time", title="To", description="Events landed before this time; empty: now."
        ),
        "rules": Param(
            [],
            type="array",
            **lists,
            **choosing(propose.rules, {ALL: "All rules of the bus"}),
            title="Rules",
            description=f"Only these rules, or {ALL} for all rules of the bus. Required.",
        ),
        "targets": Param(
            [],
            type=["null", "array"],
            **lists,
            **choosing(propose.targets),
            title="Targets",
            description="Only targets with these names; empty: all targets of the rules.",
        ),
        "pattern": Param(
            None,
            type=text,
            format="multiline",
            title="Pattern",
            description="Only events that match this filter pattern, in JSON.",
        ),
        "sql": Param(
            None,
            type=text,
            title="SQL",
            description="Only events that meet a DuckDB condition, e.g. outcome = 'dead_lettered' AND code = 503.",
        ),
        "as_of": Param(
            "today",
            type="string",
            enum=["today", "then"],
            values_display={"today": "today's rules", "then": "the rules that routed the events"},
            title="Rules as of",
            description="The version of the rules that decides which targets get the events.",
        ),
        "ids": Param(
            "new",
            type="string",
            enum=["new", "same"],
            values_display={"new": "new delivery ids", "same": "the original delivery ids"},
            title="Ids",
            description="A receiver that drops duplicates drops deliveries with an id that it already has.",
        ),
        "skip_delivered": Param(
            False,
            type="boolean",
            title="Skip delivered",
            description="Skip deliveries that a target has already received.",
        ),
        "rate": Param(
            None,
            type=["null", "number"],
            minimum=0.1,
            title="Rate",
            description="At most this many deliveries per second.",
        ),
        "dry_run": Param(
            True,
            type="boolean",
            title="Dry run",
            description="Only log what would be taken, with samples. Switch off to deliver.",
        ),
        "replay_id": Param(
            None,
            type=text,
            title="Replay id",
            description="To continue a replay: its id. Also choose its bus, and switch Dry run off; leave the rest.",
        ),
    }
