"""The form of the DAG `eventbridge_redrive_dead_letters`."""

from __future__ import annotations

from airflow.sdk import Param

from eventbridge.orchestrate.forms.choices import NO_CHOICES, Choices, proposing

#: As `REASONS` of `eventbridge.stages.dead_letters.selection`, which no DAG file imports when it is parsed; a test
#: compares.
REASONS = (
    "MaximumRetryAttempts",
    "MaximumEventAge",
    "NonRetryable",
    "TransformFailed",
    "RouteFailed",
    "TargetGone",
    "RuleRemoved",
    "DeadlineMissed",
)


def redrive_params(propose: Choices = NO_CHOICES) -> dict[str, Param]:
    """Return the form of the DAG: what chooses dead letters, and how they are delivered again."""
    text = ["null", "string"]
    return {
        "rule": Param(
            None, type=text, **proposing(propose.rules), title="Rule", description="Only those of this rule."
        ),
        "target": Param(
            None,
            type=text,
            **proposing(propose.targets),
            title="Target",
            description="Only those of targets of this name.",
        ),
        "reason": Param(
            None,
            type=text,
            enum=[None, *REASONS],
            values_display={"null": "any reason"},
            title="Reason",
            description="Only with this reason.",
        ),
        "error": Param(None, type=text, title="Error text", description="Only those whose errors have this text."),
        "since": Param(
            None, type=text, format="date-time", title="Since", description="Only those last tried from then on."
        ),
        "until": Param(
            None, type=text, format="date-time", title="Until", description="Only those last tried before then."
        ),
        "names": Param(
            [],
            type=["null", "array"],
            items={"type": "string"},
            title="Names",
            description="Delivery ids, one per line.",
        ),
        "sql": Param(None, type=text, title="SQL", description="A condition in DuckDB's SQL on the records."),
        "everything": Param(False, type="boolean", title="All", description="Required if nothing above chooses."),
        "rate": Param(
            None,
            type=["null", "number"],
            minimum=0.1,
            title="Rate",
            description="At most so many dead letters a second.",
        ),
        "retransform": Param(
            False, type="boolean", title="Retransform", description="Route the events through today's rules."
        ),
        "again": Param(False, type="boolean", title="Again", description="Also those that were redriven before."),
        "dry_run": Param(
            True,
            type="boolean",
            title="Dry run",
            description="Only log what would be taken. Switch it off to deliver.",
        ),
        "redrive_id": Param(
            None,
            type=text,
            title="Go on with",
            description="Id of a redrive that was begun. Leave all else as it is, and switch Dry run off.",
        ),
    }
