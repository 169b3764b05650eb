"""The task of the DAG `eventbridge_maintain_store`."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import task

from eventbridge.airflow.plain_failure import without_traceback
from eventbridge.airflow.tasks import TASK, stage

if TYPE_CHECKING:
    from eventbridge.config.settings import Settings

log = logging.getLogger(__name__)

#: Below every push of every lane: it waits for a slot until no other task does.
_LAST: dict[str, Any] = TASK | {"priority_weight": -1_000}


def maintain_limit(settings: Settings) -> timedelta:
    """Return `dagrun_timeout`: the budget, plus five minutes for the last step that was started."""
    return timedelta(seconds=settings.maintain_timeout + 300.0)


@task(**_LAST, do_xcom_push=False)
@without_traceback
def maintain() -> None:
    """Remove what is past its retention, within `maintain_timeout`. The next run continues."""
    from eventbridge.upkeep.maintain import maintain as run

    with stage() as runtime:
        done = run(runtime)
    log.info("removed: %s", done)
