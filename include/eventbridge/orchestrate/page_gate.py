"""Who may see the page in Airflow, and who may change what it shows: as Airflow allows it for our DAGs."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import uuid
from http import HTTPStatus
from typing import Any

from airflow.api.common.trigger_dag import trigger_dag
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user
from airflow.configuration import conf
from airflow.sdk.exceptions import AirflowException
from airflow.utils.types import DagRunTriggeredByType
from fastapi import HTTPException, Request
from fastapi.security import HTTPBearer

from eventbridge.api.page.session import AirflowRun, Asked, NotLoggedIn, Viewer
from eventbridge.api.refusal import Refused
from eventbridge.model.batch import Batch
from eventbridge.orchestrate.batch_runs import batch_of, runs_of
from eventbridge.orchestrate.names import REDRIVE_DAG, REPLAY_DAG

log = logging.getLogger(__name__)

_DAGS: dict[Asked, str] = {"redrive": REDRIVE_DAG, "replay": REPLAY_DAG}

_BEARER = HTTPBearer(auto_error=False)


class AirflowGate:
    """The login of Airflow: who may see the logs of our DAGs sees the page, who may trigger them may act."""

    async def viewer(self, request: Request) -> Viewer:
        """Return Airflow's user; raises NotLoggedIn without one, Refused for one who may not see the page."""
        try:
            user = await get_user(request, None, await _BEARER(request))
        except HTTPException as error:
            login = get_auth_manager().get_url_login(next_url=str(request.url))
            raise NotLoggedIn(f"Log in to Airflow: {error.detail}", login) from None
        looks, operates, replays = await asyncio.to_thread(_rights, user)
        if not looks:
            raise Refused(
                HTTPStatus.FORBIDDEN,
                f"{user.get_name()} may not see this page. It shows payloads: it takes the permission to read the task "
                f"logs of the DAG {REDRIVE_DAG}",
            )
        return Viewer(user.get_name(), _form_key(user), operates, replays, logs_out=False)

    def runs_of(self, batch: Batch) -> list[AirflowRun]:
        """Return the runs that moved a batch, the first one first."""
        return runs_of(batch)

    def batch_of(self, run: AirflowRun) -> str | None:
        """Return the batch that a run moved."""
        return batch_of(run)

    async def carry_out(self, asked: Asked, name: str, by: Viewer) -> str:
        """Trigger the DAG that delivers it, in the name of the user; return what went wrong, "" if nothing."""
        try:
            await asyncio.to_thread(_trigger, asked, name, by.name)
        except AirflowException as error:
            log.exception("%s %s is recorded and not triggered", asked, name)
            return f"Airflow cannot trigger {_DAGS[asked]}: {error}. Trigger it by hand, with the id under *Go on with*"
        return ""


def _trigger(asked: Asked, name: str, user: str) -> None:
    trigger_dag(
        _DAGS[asked],
        triggered_by=DagRunTriggeredByType.UI,
        triggering_user_name=user,
        # of its own each time: a replay that was paused is triggered once more
        run_id=f"{asked}__{name}__page_{uuid.uuid4().hex[:8]}",
        conf={f"{asked}_id": name},
    )


def _rights(user: Any) -> tuple[bool, bool, bool]:
    """Return whether a user may look, act, and have archived events delivered again."""

    def may(method: Any, entity: DagAccessEntity, dag: str) -> bool:
        details = DagDetails(id=dag)
        return get_auth_manager().is_authorized_dag(method=method, access_entity=entity, details=details, user=user)

    looks = may("GET", DagAccessEntity.TASK_LOGS, REDRIVE_DAG)
    acts = looks and may("POST", DagAccessEntity.RUN, REDRIVE_DAG)
    return looks, acts, looks and may("POST", DagAccessEntity.RUN, REPLAY_DAG)


def _form_key(user: Any) -> str:
    """Return what only forms of this user have; Airflow renews the user's own token while a form is open."""
    secret = conf.get("api", "secret_key")
    return hmac.new(secret.encode(), f"eventbridge form of {user.get_id()}".encode(), hashlib.sha256).hexdigest()
