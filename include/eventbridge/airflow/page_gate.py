"""Derives the rights of Airflow's users on the page and the HTTP API from their permissions on EventBridge's DAGs."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from airflow.api.common.trigger_dag import trigger_dag
from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user
from airflow.configuration import conf
from airflow.models.xcom import XComModel
from airflow.sdk.exceptions import AirflowException
from airflow.utils.session import create_session
from airflow.utils.types import DagRunTriggeredByType
from fastapi import HTTPException, Request
from fastapi.security import HTTPBearer
from sqlalchemy import select

from eventbridge.airflow.names import (
    BACKTEST_DAG,
    BATCH_ID,
    DIFF_DAG,
    REDRIVE_DAG,
    REPLAY_DAG,
    RETRY_DAG,
    deliver_dag_id,
)
from eventbridge.api.page.session import AirflowRun, NotLoggedIn, RequestKind, Viewer
from eventbridge.api.refusal import CallRefused
from eventbridge.model.api import OPERATE, OWNER, PAYLOADS, READ, V1, ApiToken
from eventbridge.model.batch import Batch
from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)

_DAGS: dict[RequestKind, str] = {"redrive": REDRIVE_DAG, "replay": REPLAY_DAG}

#: The DAG ids that represent owners in Airflow's permissions: the id for all owners, and the prefix of the id for each
#: owner.
OWNERS_DAG = "eventbridge_owners"
OWNER_DAG_PREFIX = "eventbridge_owner_"

_BEARER = HTTPBearer(auto_error=False)


class AirflowGate:
    """Authenticates Airflow's users for the page and the HTTP API, and carries out their requests as DAG runs.

    A user who may see runs of the redrive DAG may see the page; a user who may also trigger that DAG may carry out
    operator actions. To start replays, a user needs the permission to trigger the replay DAG. To start backtests, a
    user needs the permission to trigger both backtest DAGs and `eventbridge_owners`. To see payloads, a user needs the
    permission to read the task logs of the redrive DAG. To see an owner's objects, a user needs the permission to see
    runs of the DAG `eventbridge_owner_<owner>`. That DAG need not exist. If Airflow has teams, the permission is
    checked in the team that has the owner's name. To act for the owner, a user who may carry out operator actions also
    needs the permission to trigger that DAG. The same permissions on `eventbridge_owners` cover all owners.
    """

    # No prefix: the DAG is triggered as soon as a request is recorded, so the watcher need not start it.
    recorded_prefix = ""

    async def viewer(self, request: Request) -> Viewer:
        """Return the user who is logged in to Airflow.

        Raises NotLoggedIn if there is none, and CallRefused if the user may not see the page.
        """
        try:
            user = await get_user(request, None, await _BEARER(request))
        except HTTPException as error:
            login = get_auth_manager().get_url_login(next_url=str(request.url))
            raise NotLoggedIn(f"Log in to Airflow: {error.detail}", login) from None
        may = _Rights(user)
        if not await asyncio.to_thread(may.can_see_page):
            raise CallRefused(
                HTTPStatus.FORBIDDEN,
                f"{user.get_name()} may not see this page. Ask for the permission to see runs of {REDRIVE_DAG}",
            )
        runtime: Runtime = request.app.state.runtime
        return await asyncio.to_thread(may.viewer, lambda: runtime.rule_set().owners())

    def runs_of(self, batch: Batch) -> list[AirflowRun]:
        """Return the runs that processed a batch, oldest first."""
        return runs_of(batch)

    def batch_of(self, run: AirflowRun) -> str | None:
        """Return the batch that a run processed, or None."""
        return batch_of(run)

    async def rights_of_user(self, request: Request) -> ApiToken | None:
        """Return the rights of the HTTP API user whom the request's Airflow bearer token identifies.

        The caller must already have refused requests without a bearer token, because `get_user` would accept a cookie,
        which other sites can make a browser send.
        """
        found = await get_user(request, None, await _BEARER(request))
        runtime: Runtime = request.app.state.runtime
        may = _Rights(found)
        if not await asyncio.to_thread(may.can_see_page):
            return ApiToken(found.get_name(), (), runtime.clock())
        seen = await asyncio.to_thread(may.viewer, lambda: runtime.rule_set().owners())
        # the path template of the route, because the URL may have the prefix of a mount
        route = getattr(request.scope.get("route"), "path", "")
        operates = seen.can_replay if route.startswith(f"{V1}/replays") else seen.can_operate
        words = {READ: True, PAYLOADS: seen.can_see_payloads, OPERATE: operates}
        owners = seen.owners if request.method == "GET" else seen.acts_for
        # A user without owners is limited to the empty name, which no owner has. No limit would mean all owners.
        limits = [] if owners is None else [f"{OWNER}{each}" for each in sorted(owners) or [""]]
        return ApiToken(seen.name, (*(word for word, given in words.items() if given), *limits), runtime.clock())

    async def carry_out(self, kind: RequestKind, name: str, by: str) -> str:
        """Trigger the DAG that delivers a redrive or replay, on behalf of the user. Return the error, or ""."""
        error = await _trigger(_DAGS[kind], f"{kind}__{name}", {f"{kind}_id": name}, by)
        return error and f"{error}. Trigger the DAG yourself, with the id in *{kind.capitalize()} id* and *Dry run* off"

    async def backtest(self, run_conf: Mapping[str, str], by: str) -> str:
        """Trigger the DAG that runs rules over the archive, or the one that compares rules. Return the error, or ""."""
        dag_id = DIFF_DAG if "a" in run_conf else BACKTEST_DAG
        return await _trigger(dag_id, "backtest", run_conf, by)


async def _trigger(dag_id: str, reason: str, run_conf: Mapping[str, str], user: str) -> str:
    """Trigger a DAG on behalf of a user. Return the error, or ""."""
    # a new run id each time, because the DAG is triggered again for a replay that is resumed
    run_id = f"{reason}__page_{uuid.uuid4().hex[:8]}"
    by: Any = {"triggered_by": DagRunTriggeredByType.UI, "triggering_user_name": user}
    try:
        await asyncio.to_thread(trigger_dag, dag_id, run_id=run_id, conf=dict(run_conf), **by)
    except AirflowException as error:
        log.exception("cannot trigger run %s of %s", run_id, dag_id)
        return f"Airflow cannot trigger {dag_id}: {error}"
    return ""


class _Rights:
    """The permissions of a user, according to Airflow's auth manager."""

    def __init__(self, user: Any) -> None:
        self._user = user

    def can_see_page(self) -> bool:
        """Return whether the user may see the page."""
        return self._is_authorized("GET", DagAccessEntity.RUN, DagDetails(id=REDRIVE_DAG))

    def viewer(self, owners: Callable[[], Iterable[str]]) -> Viewer:
        """Return the user's rights on the page. `owners` returns the owners in the rules."""
        acts = self._is_authorized("POST", DagAccessEntity.RUN, DagDetails(id=REDRIVE_DAG))
        return Viewer(
            self._user.get_name(),
            _form_key(self._user),
            can_operate=acts,
            can_replay=self._is_authorized("POST", DagAccessEntity.RUN, DagDetails(id=REPLAY_DAG)),
            can_backtest=self._can_backtest(),
            can_log_out=False,
            can_see_payloads=self._is_authorized("GET", DagAccessEntity.TASK_LOGS, DagDetails(id=REDRIVE_DAG)),
            owners=self._owners("GET", owners),
            acts_for=self._owners("POST", owners) if acts else frozenset(),
        )

    def _can_backtest(self) -> bool:
        """Return whether the user may run backtests, whose reports show events of all owners."""
        dags = (DagDetails(id=BACKTEST_DAG), DagDetails(id=DIFF_DAG), _owners_dag(OWNERS_DAG))
        return all(self._is_authorized("POST", DagAccessEntity.RUN, each) for each in dags)

    def _owners(self, method: Any, owners: Callable[[], Iterable[str]]) -> frozenset[str] | None:
        if self._is_authorized(method, DagAccessEntity.RUN, _owners_dag(OWNERS_DAG)):
            return None
        return frozenset(
            each for each in owners() if self._is_authorized(method, DagAccessEntity.RUN, _owners_dag(each))
        )

    def _is_authorized(self, method: Any, entity: DagAccessEntity, details: DagDetails) -> bool:
        return bool(
            get_auth_manager().is_authorized_dag(method=method, access_entity=entity, details=details, user=self._user)
        )


def _owners_dag(name: str) -> DagDetails:
    """Return the DAG that represents an owner, or all owners, in Airflow's permissions. It need not exist."""
    team = name if conf.getboolean("core", "multi_team", fallback=False) else None
    return DagDetails(id=name if name == OWNERS_DAG else f"{OWNER_DAG_PREFIX}{name}", team_name=team)


def _form_key(user: Any) -> str:
    """Return the key that this user's forms contain, which other sites do not know.

    It outlasts the user's token, which Airflow renews while a form is open.
    """
    secret = conf.get("api", "secret_key")
    return hmac.new(secret.encode(), f"eventbridge form of {user.get_id()}".encode(), hashlib.sha256).hexdigest()


#: An XCom with a batch may have been written up to this long before the batch was planned or after it was committed.
_XCOM_MARGIN = timedelta(minutes=2)
_MAX_RUNS = 20


def runs_of(batch: Batch) -> list[AirflowRun]:
    """Return the runs that processed a batch, oldest first.

    There are several if a run died and another one continued the batch; at most `_MAX_RUNS` are returned.
    """
    dag = {"retry": RETRY_DAG, "redrive": REDRIVE_DAG, "replay": REPLAY_DAG}.get(batch.kind)
    wanted = select(XComModel.dag_id, XComModel.run_id, XComModel.value).where(
        XComModel.key == BATCH_ID,
        XComModel.dag_id == (dag or deliver_dag_id(batch.runner)),
        XComModel.timestamp >= batch.planned_at - _XCOM_MARGIN,
    )
    if batch.committed_at is not None:
        wanted = wanted.where(XComModel.timestamp <= batch.committed_at + _XCOM_MARGIN)
    with create_session() as session:
        found = session.execute(wanted.order_by(XComModel.timestamp)).all()
    return [AirflowRun(row.dag_id, row.run_id) for row in found if _batch_in(row.value) == batch.batch_id][:_MAX_RUNS]


def batch_of(run: AirflowRun) -> str | None:
    """Return the batch that a run processed, or None if there is no such run, or if it had no batch."""
    wanted = select(XComModel.value).where(
        XComModel.key == BATCH_ID, XComModel.dag_id == run.dag_id, XComModel.run_id == run.run_id
    )
    with create_session() as session:
        found = session.scalars(wanted).first()
    return _batch_in(found) or None


def _batch_in(value: Any) -> str:
    """Return the batch id in an XCom, whose value is either JSON text or the decoded string."""
    return str(value or "").strip('"')
