"""The forms of the DAGs `eventbridge_backtest_rules` and `eventbridge_diff_rules`."""

from __future__ import annotations

from airflow.sdk import Param

from eventbridge.airflow.forms.choices import NO_CHOICES, Choices, proposing

_CANDIDATE = "A rule of today's files, RULE@VERSION, or the text of a rule file."


def backtest_params(propose: Choices = NO_CHOICES) -> dict[str, Param]:
    """Return the form of `eventbridge_backtest_rules`: the rules and the time range."""
    return {"candidate": _candidate("Candidate"), **_archive_params(propose)}


def diff_params(propose: Choices = NO_CHOICES) -> dict[str, Param]:
    """Return the form of `eventbridge_diff_rules`: the rules to compare and the time range."""
    return {"a": _candidate("A"), "b": _candidate("B, compared with A"), **_archive_params(propose)}


def _candidate(title: str) -> Param:
    return Param("", type="string", format="multiline", minLength=1, title=title, description=_CANDIDATE)


def _archive_params(propose: Choices) -> dict[str, Param]:
    text = ["null", "string"]
    return {
        "from": Param(
            type="string",
            format="date-time",
            title="From",
            description="Events landed at or after this time. Required.",
        ),
        "to": Param(
            None, type=text, format="date-time", title="To", description="Events landed before this time; empty: now."
        ),
        "bus": Param(
            None,
            type=text,
            **proposing(propose.buses),
            title="Bus",
            description="Only rules of this bus; required for a file with rules of several buses.",
        ),
        "samples": Param(
            3,
            type="integer",
            minimum=0,
            maximum=100,
            title="Samples",
            description="Number of samples of each kind in the report.",
        ),
    }
