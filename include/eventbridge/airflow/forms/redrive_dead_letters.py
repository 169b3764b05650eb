"""The form of the DAG `eventbridge_redrive_dead_letters`."""

from __future__ import annotations

from airflow.sdk import Param

from eventbridge.airflow.forms.choices import NO_CHOICES, Choices, proposing

#: As `REASONS` of `eventbridge.dead_letters.selection`, which parsing a DAG file must not import; a test
#: compares them.
REASONS = (
    "maximum_retry_attempts",
    "maximum_event_age",
    "non_retryable",
    "transform_failed",
    "route_failed",
    "target_gone",
    "rule_removed",
    "deadline_missed",
)


def redrive_params(propose: Choices = NO_CHOICES) -> dict[str, Param]:
    """Return the form of the DAG: the filters for dead letters, and how to deliver them again."""
    text = ["null", "string"]
    return {
        "rule": Param(
            None, type=text, **proposing(propose.rules), title="Rule", description="Only dead letters of this rule."
        ),
        "target": Param(
            None,
            type=text,
            **proposing(propose.targets),
            title="Target",
            description="Only dead letters of targets with this name.",
        ),
        "reason": Param(
            None,
            type=text,
            enum=[None, *REASONS],
            values_display={"null": "any reason"},
            title="Reason",
            description="Only dead letters with this reason.",
        ),
        "error": Param(
            None, type=text, title="Error text", description="Only dead letters whose errors contain this text."
        ),
        "from": Param(
            None,
            type=text,
            format="date-time",
            title="From",
            description="Only dead letters last tried at or after this time.",
        ),
        "to": Param(
            None,
            type=text,
            format="date-time",
            title="To",
            description="Only dead letters last tried before this time.",
        ),
        "names": Param(
            [],
            type=["null", "array"],
            items={"type": "string"},
            title="Names",
            description="Delivery ids, one per line.",
        ),
        "sql": Param(
            None, type=text, title="SQL", description="Only dead letters whose records meet this DuckDB condition."
        ),
        "everything": Param(False, type="boolean", title="All", description="Required if no filter above is set."),
        "rate": Param(
            None,
            type=["null", "number"],
            minimum=0.1,
            title="Rate",
            description="At most this many dead letters per second.",
        ),
        "retransform": Param(
            False, type="boolean", title="Retransform", description="Route the events through today's rules."
        ),
        "again": Param(
            False, type="boolean", title="Again", description="Also dead letters that were redriven before."
        ),
        "dry_run": Param(
            True,
            type="boolean",
            title="Dry run",
            description="Only log what would be taken. Switch off to deliver.",
        ),
        "redrive_id": Param(
            None,
            type=text,
            title="Redrive id",
            description="To continue a redrive: its id. Leave the other fields unchanged, and switch Dry run off.",
        ),
    }
