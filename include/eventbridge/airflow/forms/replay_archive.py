"""The form of the DAG `eventbridge_replay_archive`."""

from __future__ import annotations

from airflow.sdk import Param

from eventbridge.airflow.forms.choices import NO_CHOICES, Choices
from eventbridge.airflow.forms.replay_events import replay_params

#: The fields that the run itself determines: its hour, and the replay to continue.
_OF_THE_RUN = ("from", "to", "replay_id")


def archive_params(propose: Choices = NO_CHOICES) -> dict[str, Param]:
    """Return the form of the DAG: that of `eventbridge_replay_events` without the fields that the run determines."""
    return {name: param for name, param in replay_params(propose).items() if name not in _OF_THE_RUN}
