"""The form of the DAG `eventbridge_replay_events`."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from eventbridge.orchestrate.forms.choices import ALL, NO_CHOICES, Choices, choosing, proposing


def replay_params(propose: Choices = NO_CHOICES) -> dict[str, Param]:
    """Return the form of the DAG: which events, by which rules, to which targets, and how.

    What is required is checked by the first task: a replay that goes on needs none of it.
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
            description="Events landed from then on. Required, but to go on.",
        ),
        "to": Param(
            None, type=text, format="date-time", title="To", description="Events landed before then; empty: now."
        ),
        "rules": Param(
            [],
            type="array",
            **lists,
            **choosing(propose.rules, {ALL: "All rules of the bus"}),
            title="Rules",
            description=f"Only for these, or {ALL} for all rules of the bus. Required.",
        ),
        "targets": Param(
            [],
            type=["null", "array"],
            **lists,
            **choosing(propose.targets),
            title="Targets",
            description="Only to targets of these names; empty: to every target of the rules.",
        ),
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
            description="Only events that meet a DuckDB condition, e.g. outcome = 'dead_lettered' AND code = 503.",
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
            True,
            type="boolean",
            title="Dry run",
            description="Only log what would be taken, with samples. Switch it off to deliver.",
        ),
        "replay_id": Param(
            None,
            type=text,
            title="Go on with",
            description="Id of a replay that was begun, or paused. Choose its bus, and switch Dry run off; no more.",
        ),
    }
