"""The form of the DAG `eventbridge_operate_rules`."""

from __future__ import annotations

from airflow.sdk import Param

from eventbridge.airflow.forms.choices import NO_CHOICES, Choices, proposing

#: As `Action` of `eventbridge.control.overrides`, which parsing a DAG file must not import; a test compares
#: them.
ACTIONS = (
    "pause rule",
    "resume rule",
    "disable rule",
    "enable rule",
    "set priority",
    "clear priority",
    "pause target",
    "resume target",
    "set rate",
    "clear rate",
)

#: The other actions: return a target to service, and release a rule that is on hold.
REPAIRS = ("enable target", "release rule")


def operate_params(propose: Choices = NO_CHOICES) -> dict[str, Param]:
    """Return the form of the DAG: the action, and the rule or target."""
    text = ["null", "string"]
    return {
        "action": Param(
            "pause rule",
            type="string",
            enum=[*ACTIONS, *REPAIRS],
            title="Action",
            description="The action to carry out.",
        ),
        "rule": Param(
            "",
            type="string",
            minLength=1,
            **proposing(propose.rules),
            title="Rule",
            description="The name of the rule.",
        ),
        "target": Param(
            None,
            type=text,
            **proposing(propose.targets),
            title="Target",
            description="The name of the target, for actions on a target.",
        ),
        "value": Param(
            None, type=text, title="Value", description="high, medium or low for a priority; 10/s or 300/m for a rate."
        ),
        "confirm": Param(
            False,
            type="boolean",
            title="Confirm",
            description="Required to disable a rule: events that arrive meanwhile never reach it.",
        ),
    }
