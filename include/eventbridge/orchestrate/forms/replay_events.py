"""The form of the DAG `replay_events`."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from eventbridge.orchestrate.forms.choices import buses_to_choose


def replay_params() -> dict[str, Param]:
    """Return the form of the DAG: which events, by which rules, to which targets, and how."""
    text = ["null", "string"]
    names: dict[str, Any] = {"type": ["null", "array"], "items": {"type": "string"}}
    bus = "The bus whose archive is replayed. Required."
    return {
        "bus": Param(None, type=text, examples=buses_to_choose(), title="Bus", description=bus),
        "from": Param(
            None, type=text, format="date-time", title="From", description="Events landed from then on. Required."
        ),
        "to": Param(
            None, type=text, format="date-time", title="To", description="Events landed before then; empty: now."
        ),
        "rules": Param(None, **names, title="Rules", description="Only for these, one per line."),
        "targets": Param(None, **names, title="Targets", description="Only to targets of these names, one per line."),
        "pattern": Param(
            None,
            type=text,
            format="multiline",
            title="Pattern",
            description="Only events that this filter pattern, in JSON, matches.",
        ),
        "sql": Param(
            None,
            type=text,
            title="SQL",
            description="Only events that meet a DuckDB condition, e.g. outcome = 'DeadLettered' AND code = 503.",
        ),
        "as_of": Param(
            "today",
            type="string",
            enum=["today", "then"],
            values_display={"today": "rules of today", "then": "rules that routed the events then"},
            title="By",
            description="The rules that decide who gets them.",
        ),
        "ids": Param(
            "new",
            type="string",
            enum=["new", "same"],
            values_display={"new": "new delivery ids", "same": "the delivery ids they had"},
            title="Ids",
            description="A receiver that drops repetitions drops what comes under an id that it had.",
        ),
        "skip_delivered": Param(
            False, type="boolean", title="Skip delivered", description="Leave out what a target has received already."
        ),
        "rate": Param(
            None, type=["null", "number"], minimum=0.1, title="Rate", description="At most so many deliveries a second."
        ),
        "dry_run": Param(
            False, type="boolean", title="Dry run", description="Only log what would be taken, with samples."
        ),
        "replay_id": Param(
            None,
            type=text,
            title="Go on with",
            description="Id of a replay that was begun, or paused; chooses nothing.",
        ),
    }
