"""The form of the DAG `eventbridge_operate_rules`."""

from __future__ import annotations

from airflow.sdk import Param

from eventbridge.orchestrate.forms.choices import NO_CHOICES, Choices, proposing

#: As `Action` of `eventbridge.stages.operate.overrides`, which no DAG file imports when it is parsed; a test compares.
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

#: What else the form does: it takes a target back into service, or lets a rule go on that is on hold.
REPAIRS = ("enable target", "release rule")


def operate_params(propose: Choices = NO_CHOICES) -> dict[str, Param]:
    """Return the form of the DAG: what is to be done, to which rule or target."""
    text = ["null", "string"]
    return {
        "action": Param(
            "pause rule", type="string", enum=[*ACTIONS, *REPAIRS], title="Action", description="What to do."
        ),
        "rule": Param(
            "", type="string", minLength=1, **proposing(propose.rules), title="Rule", description="Its name."
        ),
        "target": Param(
            None,
            type=text,
            **proposing(propose.targets),
            title="Target",
            description="Its target, for actions that are about one.",
        ),
        "value": Param(
            None, type=text, title="Value", description="high, medium or low for a priority; 10/s or 300/m for a rate."
        ),
        "confirm": Param(
            False, type="boolean", title="Confirm", description="Required to disable a rule: events then pass it by."
        ),
    }
