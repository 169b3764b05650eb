"""Serves the pages of replays: the preview, the form to start one, the list, and one replay with its progress."""

from __future__ import annotations

import asyncio
import re
import uuid
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response

from eventbridge.api.call_pools import reads_store, run_expensive
from eventbridge.api.documents import run_for_caller
from eventbridge.api.lists import page_of
from eventbridge.api.page.forms import (
    OperatorForm,
    SubmittedForm,
    form_values,
    read_fields,
    redirect_to,
    run_form,
)
from eventbridge.api.page.render import render
from eventbridge.api.page.session import Gate, Viewer, viewer
from eventbridge.api.payloads import visible_selection
from eventbridge.api.refusal import CallRefused
from eventbridge.control.consecutive_batches import cancel_replay, pause_replay, resume_replay
from eventbridge.errors import UserError
from eventbridge.replay.account import ReplayProgress, find_replay, replay_document, replay_progress, visible_replays
from eventbridge.replay.plan import begin_replay
from eventbridge.replay.request import WrittenReplayRequest
from eventbridge.replay.survey import PREVIEW_FILES, survey
from eventbridge.routing.compile_process import compilation
from eventbridge.rules import RuleSet
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.archive_estimate import estimate

router = APIRouter(prefix="/page", include_in_schema=False, default_response_class=Response)

_Viewer = Annotated[Viewer, Depends(viewer)]
Word = Literal["pause", "resume", "cancel"]
_LISTED = 100
#: The maximum number of targets that the form lists; with more, names are typed.
_MAX_CHOICES = 200


@dataclass(frozen=True)
class ReplayForm:
    """The form of a replay; a field that is not filled in is "".

    `rules` and `targets` are names, separated by commas or blanks; `only` is one target as `<rule>/<target>`, which
    replaces them.
    """

    bus: str = ""
    since: Annotated[str, Query(alias="from")] = ""
    until: Annotated[str, Query(alias="to")] = ""
    only: str = ""
    rules: str = ""
    targets: str = ""
    pattern: str = ""
    sql: str = ""
    as_of: str = ""
    ids: str = ""
    skip_delivered: str = ""
    rate: str = ""

    @property
    def chosen_names(self) -> tuple[list[str], list[str]]:
        """The names of the chosen rules and targets."""
        if self.only:
            rule, _, target = self.only.partition("/")
            return [rule], [target]
        return _names(self.rules), _names(self.targets)

    def replay_request(self) -> WrittenReplayRequest:
        """Return the request of the form. Raises UserError for a malformed rate."""
        try:
            rate = float(self.rate) if self.rate else None
        except ValueError:
            raise UserError(f"{self.rate!r} is not a rate. Write a number of deliveries a second") from None
        rules, targets = self.chosen_names
        return WrittenReplayRequest(
            self.bus,
            since=self.since,
            until=self.until,
            rules=rules,
            targets=targets,
            pattern=self.pattern,
            sql=self.sql,
            as_of=self.as_of or "current",
            new_ids=self.ids != "same",
            skip_delivered=bool(self.skip_delivered),
            rate=rate,
        )


def _names(text: str) -> list[str]:
    return [each for each in re.split(r"[\s,]+", text) if each]


@router.get("/replay")
async def preview(
    request: Request, found: _Viewer, form: Annotated[ReplayForm, Depends()], count: str = ""
) -> Response:
    """Return the form and, once it names a bus and a time, the preview of the replay; changes nothing.

    With `count`, or without a time, the page has an estimate from the ledger instead, for which no file is read. The
    estimate without a time is that of the last hour.
    """

    def load(runtime: Runtime) -> dict[str, Any]:
        return _preview(runtime, form, is_counted=bool(count))

    values = await run_expensive(request, lambda: run_for_caller(request, load))
    return render(request, "replay_form", {"viewer": found} | values)


def _preview(runtime: Runtime, form: ReplayForm, *, is_counted: bool = False) -> dict[str, Any]:
    rules = runtime.rule_set()
    choices = _choices(rules)
    if not form.bus and len(rules.buses) == 1:
        form = replace(form, bus=next(iter(rules.buses)))
    if not form.since:  # a form that nobody has filled in yet: it shows what the last hour would be
        form, is_counted = replace(form, since="1h"), True
    values: dict[str, Any] = {"form": form_values(form), "buses": sorted(rules.buses), "choices": choices}
    names, targets = form.chosen_names
    one = "/".join((*names, *targets))
    if len(names) == len(targets) == 1 and any(one in of_bus for of_bus in choices.values()):
        values["form"] |= {"only": one, "rules": "", "targets": ""}
    if not form.bus:
        return values
    try:
        replay_request = form.replay_request().read(runtime.ledger.now(), rules)
        if is_counted:
            return values | {"estimate": estimate(runtime, form.bus, form.since, form.until, names, targets)}
        compilation.wait()
        return values | {"survey": survey(runtime, replay_request, PREVIEW_FILES), "max_files": PREVIEW_FILES}
    except UserError as error:  # a wrong value in the form, which is shown again
        return values | {"message": str(error)}


def _choices(rules: RuleSet) -> dict[str, list[str]]:
    """Return the targets of enabled rules as `<rule>/<target>`, by bus; none if they are too many for a list."""
    found: dict[str, list[str]] = {}
    for name, rule in rules.enabled().items():
        found.setdefault(rule.bus, []).extend(f"{name}/{target}" for target in rule.targets)
        if sum(map(len, found.values())) > _MAX_CHOICES:
            return {}
    return {bus: sorted(found[bus]) for bus in sorted(found)}


@router.post("/replay")
async def begin(request: Request, submitted: OperatorForm) -> Response:
    """Record a replay and, if Airflow mounts the page, have Airflow deliver it."""
    _check(submitted)
    form = read_fields(ReplayForm, submitted)
    gate: Gate = request.app.state.gate

    def start(runtime: Runtime) -> str:
        replay_request = form.replay_request().read(runtime.ledger.now(), runtime.rule_set())
        return begin_replay(
            runtime, replay_request, f"{gate.recorded_prefix}page, {submitted.viewer.name}, {uuid.uuid4()}"
        ).replay_id

    def page(runtime: Runtime) -> dict[str, Any]:
        values = {"viewer": submitted.viewer} | _preview(runtime, form)
        values.pop("message", None)  # the refusal shows the same reason
        return values

    replay_id: str = await run_expensive(request, lambda: run_form(request, start, "replay_form", page))
    return await _change_replay(request, submitted, replay_id)


@router.get("/replays")
def replays(request: Request, found: _Viewer, cursor: str = "") -> Response:
    """Return replays, the newest first."""

    def load(runtime: Runtime) -> dict[str, Any]:
        some, following = page_of(visible_replays(runtime), lambda each: (each.replay_id,), _LISTED, cursor or None)
        now = runtime.clock()
        found = [replay_progress(runtime, each) for each in some]
        return {"replays": [(each, _progress(each, now)) for each in found], "cursor": following}

    return render(request, "replays", {"viewer": found} | run_for_caller(request, load))


@router.get("/replays/{replay_id}")
@reads_store
def replay(request: Request, found: _Viewer, replay_id: str) -> Response:
    """Return one replay: the request, its progress, and the outcomes of its deliveries."""

    def load(runtime: Runtime) -> dict[str, Any]:
        document = visible_selection(request, replay_document(runtime, replay_id))
        progress = _progress(replay_progress(runtime, find_replay(runtime, replay_id)), runtime.clock())
        return {"since" if name == "from" else name: value for name, value in document.items()} | {"progress": progress}

    return render(request, "replay", {"viewer": found} | run_for_caller(request, load))


def _progress(found: ReplayProgress, now: datetime) -> dict[str, Any]:
    """Return how much of its period a replay has read in percent, its rate, and the seconds that are left.

    The archive is read by time, so that the estimate is as even as the events were.
    """
    replay = found.replay
    if replay.state == "done":
        return {"percent": 100.0, "rate": None, "left": None}
    share = (found.reached - replay.since) / (replay.until - replay.since) if found.reached else 0.0
    share = min(max(share, 0.0), 1.0)
    elapsed = (now - replay.started_at).total_seconds()
    is_moving = replay.state == "running" and share > 0 and elapsed > 0
    return {
        "percent": 100 * share,
        "rate": found.taken / elapsed if is_moving else None,
        "left": elapsed * (1 - share) / share if is_moving else None,
    }


@router.post("/replays/{replay_id}/{word}")
async def change(request: Request, submitted: OperatorForm, replay_id: str, word: Word) -> Response:
    """Pause, resume or cancel a replay; the batch in progress is finished."""
    _check(submitted)

    def apply(runtime: Runtime) -> tuple[str, bool]:
        name = find_replay(runtime, replay_id).replay_id
        does = {"pause": pause_replay, "resume": resume_replay, "cancel": cancel_replay}[word]
        return name, does(runtime, name)

    name, is_changed = await asyncio.to_thread(run_for_caller, request, apply)
    if word == "resume" and is_changed:
        return await _change_replay(request, submitted, name)
    return redirect_to(request, f"/replays/{name}")


def _check(submitted: SubmittedForm) -> None:
    if not submitted.viewer.can_replay:
        raise CallRefused(
            HTTPStatus.FORBIDDEN,
            f"{submitted.viewer.name} may not replay: that needs the permission to trigger eventbridge_replay_events. "
            "Nothing was changed",
        )


async def _change_replay(request: Request, submitted: SubmittedForm, replay_id: str) -> Response:
    gate: Gate = request.app.state.gate
    error = await gate.carry_out("replay", replay_id, submitted.viewer.name)
    if error:
        raise CallRefused(HTTPStatus.SERVICE_UNAVAILABLE, f"The replay {replay_id} is recorded, but {error}")
    return redirect_to(request, f"/replays/{replay_id}")
