"""The form of the DAG `eventbridge_check_quality`."""

from __future__ import annotations

from airflow.sdk import Param


def quality_params() -> dict[str, Param]:
    """Return the form of the DAG: the hour."""
    return {
        "hour": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="Hour",
            description="The start of a past hour; empty: the hour before the run.",
        )
    }
