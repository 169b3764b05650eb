"""Serves the pages of batches and chunks: ranges, reconciliation, attempts, and the DAG runs in Airflow."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from eventbridge.api.call_pools import reads_store
from eventbridge.api.documents import run_for_caller
from eventbridge.api.page.forms import redirect_to
from eventbridge.api.page.render import render
from eventbridge.api.page.session import AirflowRun, Gate, Viewer, viewer
from eventbridge.api.payloads import visible_error
from eventbridge.api.refusal import CallRefused
from eventbridge.errors import NotFoundError
from eventbridge.model.chunk import Chunk
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.batches import batch_account, batch_page
from eventbridge.views.chunks import ChunkAttempt, chunk_account, chunk_of_push

router = APIRouter(prefix="/page", include_in_schema=False, default_response_class=Response)

_Viewer = Annotated[Viewer, Depends(viewer)]
_LISTED = 100
#: The maximum number of rows in each table of a batch.
_ROWS = 50
#: The maximum chunk number; it is limited because databases reject much larger numbers.
_MOST = 2**31 - 1
_Number = Annotated[int, Path(ge=0, le=_MOST)]


@router.get("/batches")
def batches(request: Request, found: _Viewer, cursor: str = "") -> Response:
    """Return batches, the newest first."""
    page = run_for_caller(request, lambda runtime: batch_page(runtime, _LISTED, cursor or None))
    return render(request, "batches", {"viewer": found, "batches": page.batches, "cursor": page.cursor})


@router.get("/batches/{batch_id}")
@reads_store
def batch(request: Request, found: _Viewer, batch_id: str) -> Response:
    """Return one batch: its ranges, chunks, reconciliation as recomputed from the store, and DAG runs."""
    account = run_for_caller(request, lambda runtime: batch_account(runtime, batch_id))
    values = vars(account) | {
        "viewer": found,
        "runs": _gate(request).runs_of(account.batch),
        "push": _push,
        "durations": [(each.stage, each.seconds) for each in account.stages],
        "shown_chunks": sorted(account.chunks, key=_urgency)[:_ROWS],
        "shown_ranges": account.ranges[:_ROWS],
        "most": _ROWS,
    }
    return render(request, "batch", values)


@router.get("/batches/{batch_id}/chunks/{chunk_id}")
@reads_store
def chunk(request: Request, found: _Viewer, batch_id: str, chunk_id: _Number, cursor: str = "") -> Response:
    """Return one chunk: a page of its pieces, and the attempts at their deliveries."""
    account = run_for_caller(request, lambda runtime: chunk_account(runtime, batch_id, chunk_id, cursor or None))
    runs = _gate(request).runs_of(account.batch)
    values = vars(account) | {"attempts": [_visible_attempt(request, each) for each in account.attempts]}
    return render(request, "chunk", {"viewer": found, "runs": runs, "push": _push} | values)


@router.get("/run")
def batch_of_run(request: Request, found: _Viewer, dag: str, run: str) -> Response:
    """Redirect from a DAG run in Airflow to its batch."""
    batch_id = _gate(request).batch_of(AirflowRun(dag, run))
    if batch_id is None:
        raise CallRefused(
            HTTPStatus.NOT_FOUND, f"The run {run} of {dag} has no batch, or Airflow has deleted its record"
        )
    return redirect_to(request, f"/batches/{batch_id}")


@router.get("/chunk")
def chunk_of_run(
    request: Request,
    found: _Viewer,
    dag: str,
    run: str,
    number: Annotated[int, Query(alias="map", ge=-1, le=_MOST)] = 0,
) -> Response:
    """Redirect from a push task in Airflow to its chunk."""
    batch_id = _gate(request).batch_of(AirflowRun(dag, run))

    def chunk_of_task(runtime: Runtime) -> int:
        if batch_id is None:
            raise NotFoundError(f"the run {run} of {dag} has no batch, or Airflow has deleted its record")
        return chunk_of_push(runtime, batch_id, number)

    chunk_id = run_for_caller(request, chunk_of_task)
    return redirect_to(request, f"/batches/{batch_id}/chunks/{chunk_id}")


def _urgency(chunk: Chunk) -> tuple[bool, bool, int]:
    """Return the key that puts failed chunks first, then unfinished ones."""
    return not (chunk.failed or chunk.error), chunk.ended_at is not None, chunk.chunk_id


def _visible_attempt(request: Request, attempt: ChunkAttempt) -> ChunkAttempt:
    row = attempt.row
    return replace(attempt, row=row | {"error": visible_error(request, row["reason"], row["error"])})


def _gate(request: Request) -> Gate:
    gate: Gate = request.app.state.gate
    return gate


def _push(run: AirflowRun, map_index: Any = None) -> str:
    """Return the path of a DAG run, or of one of its push tasks, relative to Airflow's root."""
    path = f"/dags/{quote(run.dag_id, safe='')}/runs/{quote(run.run_id, safe='')}"
    return path if map_index is None else f"{path}/tasks/push/mapped/{map_index}"
