"""Serves the read calls, which return the documents that the command line prints with `--json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from eventbridge.api import models
from eventbridge.api.access import reader, visible_to_caller
from eventbridge.api.call_pools import asks_buses, reads_store
from eventbridge.api.descriptions import described, problems
from eventbridge.api.payloads import (
    can_see_payloads,
    visible_dead_letter,
    visible_groups,
    visible_rule_on_hold,
    visible_trace,
)
from eventbridge.api.refusal import CallRefused
from eventbridge.api.routes import TokenFirst
from eventbridge.dead_letters.reader import (
    DeadLetterName,
    DeadLetterPage,
    dead_letter_page,
    find_dead_letters,
    read_dead_letter,
    whole_dead_letters,
)
from eventbridge.dead_letters.selection import WrittenSelection, name_of
from eventbridge.errors import (
    ConnectionUnusable,
    NotFoundError,
    PackageMissing,
    RuleFileError,
    SettingsError,
    TypeUnusable,
    UserError,
)
from eventbridge.event.ids import delivery_id_text
from eventbridge.event.json_document import parse_document, write_document
from eventbridge.event.json_text import plain
from eventbridge.model.api import V1
from eventbridge.model.why import Why
from eventbridge.repair.audit import Audit, find_batch
from eventbridge.repair.audit import audit as audited
from eventbridge.rules.find import find_rule
from eventbridge.rules.frozen import content_of
from eventbridge.runtime.batch_files import Damaged
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.rules import MAX_VERSIONS, rule_version_page
from eventbridge.views.status import Status
from eventbridge.views.status import status as status_of
from eventbridge.views.trace.explain import why_between

#: The maximum number of dead letters that one call returns.
MAX_DEAD_LETTERS = 500
#: The maximum number of dead letters that one call returns with event, request and attempts, which may be large.
MAX_WHOLE = 20
#: The maximum number of batches that one call audits.
MAX_AUDITED = 1_000

_STATUSES = {
    400: "A value is malformed.",
    401: "The token is missing, unknown, revoked or expired.",
    403: "The token has no scope `read`, or its owners or scopes do not allow this call.",
    404: "Not found.",
    422: "A value is out of range.",
    503: "The ledger, the store or the rule files fail. Try again after the delay in Retry-After.",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    **problems("read", _STATUSES),
}

router = APIRouter(
    prefix=V1,
    route_class=TokenFirst,
    dependencies=[Depends(reader)],
    default_response_class=Response,
    responses=RESPONSES,
)

_TIME = "ISO 8601 (UTC without an offset), or an age such as 2h."
#: The query parameters that limit a call to a time range.
From = Annotated[str | None, Query(alias="from", description=f"The earliest time: {_TIME}")]
To = Annotated[str | None, Query(alias="to", description=f"The time before which the range ends: {_TIME}")]
#: The query parameter that continues a list.
Cursor = Annotated[str | None, Query(description="`next` of the previous page; none: the first page.")]


@router.get("/status", summary="Get the status of every runner", **described("get_status", "state", Status))
@asks_buses
def status(request: Request, batches: Annotated[int, Query(ge=0, le=1_000)] = 10) -> Response:
    """Return the lag, flow, in-flight and available events of each partition, the newest batches, and all that is
    unhealthy."""

    def load(runtime: Runtime) -> Status:
        current = status_of(runtime, batches=batches)
        return replace(
            current, rules_on_hold=tuple(visible_rule_on_hold(request, each) for each in current.rules_on_hold)
        )

    return document_response(request, load)


@router.get("/rules/{rule}", summary="Get a rule", **described("get_rule", "rules", models.RuleDefinition))
def rule(request: Request, rule: Annotated[str, Path(description="The name of a rule.")]) -> Response:
    """Return a rule in force, with its defaults filled in."""
    return document_response(request, lambda runtime: rule_document(runtime, rule))


@router.get(
    "/rules/{rule}/versions",
    summary="List the versions of a rule",
    **described("list_rule_versions", "rules", models.RuleVersionList),
)
@reads_store
def rule_versions(
    request: Request,
    rule: Annotated[str, Path(description="The name of a rule.")],
    limit: Annotated[int, Query(ge=1, le=MAX_VERSIONS, description="The maximum number of items.")] = MAX_VERSIONS,
    cursor: Cursor = None,
) -> Response:
    """Return a rule's versions, the newest first: when each came into force, and its diff from the previous one."""

    def load(runtime: Runtime) -> Page:
        name = find_rule(runtime.rule_set(), rule).name
        some, following = rule_version_page(runtime, name, limit, cursor)
        return {"versions": some}, following

    return page_response(request, load)


@dataclass(frozen=True)
class DeadLetterQuery:
    """The filters of dead letters; a dead letter must meet all filters that are given."""

    rule: Annotated[str | None, Query(description="Only dead letters of this rule.")] = None
    target: Annotated[str | None, Query(description="Only dead letters of targets of this name.")] = None
    reason: Annotated[str | None, Query(description="Only dead letters with this reason, such as non_retryable.")] = (
        None
    )
    error: Annotated[
        str | None, Query(description="Only dead letters with this text in the detail or in an attempt's error.")
    ] = None
    since: From = None
    until: To = None
    limit: Annotated[int, Query(ge=1, le=MAX_DEAD_LETTERS, description="The maximum number of items.")] = 50
    cursor: Cursor = None

    def dead_letters(
        self, request: Request, runtime: Runtime, max_rows: int = MAX_DEAD_LETTERS
    ) -> tuple[DeadLetterPage, Damaged]:
        """Return at most `max_rows` matching dead letters without their long columns, and the unreadable files.

        An unreadable file does not hide the others. `error` searches only text that the caller may see.
        """
        wanted = WrittenSelection(self.rule, self.target, self.reason, self.error, self.since, self.until)
        damaged: Damaged = {}
        limit = min(max_rows, self.limit)
        chosen = wanted.read(runtime.clock(), payloads=can_see_payloads(request))
        found = dead_letter_page(runtime, chosen, limit, self.cursor or None, damaged=damaged)
        return found, damaged


@router.get(
    "/dead-letters",
    summary="List dead letters",
    **described("list_dead_letters", "dead letters", models.DeadLetterList),
)
@reads_store
def dead_letters(
    request: Request,
    query: Annotated[DeadLetterQuery, Depends()],
    whole: Annotated[
        bool, Query(description=f"Include event, request and every attempt; at most {MAX_WHOLE} items per call.")
    ] = False,
) -> Response:
    """Return dead letters, those of the newest batch first. Send `next` as `cursor` for the next page.

    One call reads at most 100 files, so it may return `next` with few items, or none. `unreadable` lists the files
    that could not be read. Unless the token has the `payloads` scope, the event, the request, the
    responses, and details that may quote the event are hidden.
    """

    def load(runtime: Runtime) -> Page:
        found, damaged = query.dead_letters(request, runtime, MAX_WHOLE if whole else MAX_DEAD_LETTERS)
        if whole:
            shown = [
                visible_dead_letter(request, with_name(each))
                for each in whole_dead_letters(runtime, found.dead_letters, damaged)
            ]
        else:
            shown = [visible_dead_letter(request, with_name(each)) for each in found.records()]
        return {"dead_letters": shown, "unreadable": _unreadable(damaged)}, found.cursor

    return page_response(request, load)


@router.get(
    "/dead-letter-groups",
    summary="Count dead letters by rule, target, reason and error",
    **described("list_dead_letter_groups", "dead letters", models.DeadLetterGroupList),
)
@reads_store
def dead_letter_groups(request: Request, query: Annotated[DeadLetterQuery, Depends()]) -> Response:
    """Return the counts of one page of dead letters by rule, target, reason and beginning of the error.

    Send `next` of the response as `cursor` to get the groups of the next page.
    """

    def load(runtime: Runtime) -> Page:
        found, damaged = query.dead_letters(request, runtime)
        seen = [visible_dead_letter(request, each) for each in found.records()]
        return {"groups": visible_groups(seen), "unreadable": _unreadable(damaged)}, found.cursor

    return page_response(request, load)


@router.get(
    "/dead-letters/{name:path}",
    summary="Get a dead letter",
    **described("get_dead_letter", "dead letters", models.DeadLetter),
)
@reads_store
def dead_letter(
    request: Request,
    name: Annotated[str, Path(description="A name from the list, a delivery id, or the position of an event.")],
) -> Response:
    """Return a dead letter with its event, transformed request and every attempt.

    A delivery id, or the position of an event, stands for the newest of its dead letters.

    Unless the token has the `payloads` scope, the event, the request, the responses, and details that may quote the
    event are hidden.
    """
    return document_response(
        request, lambda runtime: visible_dead_letter(request, with_name(dead_letter_document(runtime, name)))
    )


@router.get("/events/{event_id:path}", summary="Trace an event", **described("get_event", "events", Why))
@reads_store
def event(
    request: Request,
    event_id: Annotated[str, Path(description="The id of the event.")],
    bus: Annotated[str | None, Query(description="Only the event on this bus.")] = None,
    since: From = None,
    until: To = None,
) -> Response:
    """Return an event's positions, whether each rule matches it, and every delivery and attempt.

    Without the `payloads` scope, values of the event's fields and responses of targets are hidden.
    """
    return document_response(
        request, lambda runtime: visible_trace(request, why_between(runtime, event_id, bus, since, until))
    )


@router.get("/audit", summary="Recompute the reconciliation", **described("get_audit", "history", Audit))
@reads_store
def audit(
    request: Request,
    batch: Annotated[str | None, Query(description="Only this batch, by its id or the beginning of it.")] = None,
) -> Response:
    """Return the reconciliation of every committed batch, recomputed from the store, with every difference.

    This takes a while. If there are more than 1,000 batches, name one; `eventbridge audit` has no limit.
    """

    def load(runtime: Runtime) -> Any:
        if batch is not None:
            return audited(runtime, find_batch(runtime, batch))
        if len(runtime.ledger.batches.find(limit=MAX_AUDITED + 1)) > MAX_AUDITED:
            raise UserError(
                f"there are more than {MAX_AUDITED} batches. Name one with batch=, or run `eventbridge audit`"
            )
        return audited(runtime)

    return document_response(request, load)


def rule_document(runtime: Runtime, name: str) -> dict[str, Any]:
    """Return a rule in force as JSON, with numbers as written. Raises NotFoundError for an unknown rule."""
    document: Any = parse_document(write_document(content_of(find_rule(runtime.rule_set(), name))))
    return dict(document)


def dead_letter_document(runtime: Runtime, name: str) -> dict[str, Any]:
    """Return the whole newest dead letter with the given name. Raises the same errors as `dead_letter_named`."""
    letter = dead_letter_named(runtime, name)
    return read_dead_letter(runtime, letter.file, letter.row)


def dead_letter_named(runtime: Runtime, name: str) -> DeadLetterName:
    """Return the file and the row of the newest dead letter with the given name.

    Raises NotFoundError if there is none, StoreError if there is none but a file is unreadable, UserError for a
    malformed name.
    """
    damaged: Damaged = {}
    try:
        newest, *_ = find_dead_letters(runtime, name, damaged)
    except NotFoundError:
        _refuse_damaged(damaged)  # it may be in one of these files
        raise
    return newest


def with_name(record: dict[str, Any]) -> dict[str, Any]:
    """Return a dead letter with its name, and with its delivery id as text."""
    delivery = record.get("delivery_id")
    text = None if delivery is None else delivery_id_text(delivery)
    return {"name": name_of(record)} | record | {"delivery_id": text}


def run_for_caller(request: Request, find: Callable[[Runtime], Any]) -> Any:
    """Return the result of `find` on the installation, restricted to what the caller may see.

    Raises CallRefused if a value of the call is invalid, or if the caller's limit to owners forbids this call.
    """
    if "\0" in request.scope["path"] or b"%00" in request.scope["query_string"]:  # some databases reject it
        raise CallRefused(
            HTTPStatus.BAD_REQUEST, "The URL contains the character NUL, which no name or id contains. Remove it"
        )
    state = request.app.state
    runtime = visible_to_caller(request, state.reader if request.method in ("GET", "HEAD") else state.operator)
    try:
        return find(runtime)
    except (NotFoundError, RuleFileError, SettingsError, PackageMissing, TypeUnusable, ConnectionUnusable):
        raise  # except for NotFoundError, these are errors in the server's configuration
    except UserError as error:
        raise CallRefused(HTTPStatus.BAD_REQUEST, str(error)) from None


def document_response(request: Request, find: Callable[[Runtime], Any]) -> Response:
    """Return the result of `find` as JSON; see `run_for_caller`."""
    return json_response(run_for_caller(request, find))


def json_response(content: Any) -> Response:
    """Return a result as a JSON response; its status is 202 if the result is `Accepted`."""
    status = HTTPStatus.ACCEPTED if isinstance(content, Accepted) else HTTPStatus.OK
    return Response(write_document(plain(content)), status, media_type="application/json")


class Accepted(dict[str, Any]):
    """The document of something that was recorded and will be carried out later."""


#: A page of a list as JSON, and the cursor of the next page (None if there is none).
Page = tuple[Mapping[str, Any], str | None]


def page_response(request: Request, find: Callable[[Runtime], Page]) -> Response:
    """Return a page as JSON; its member `next`, and the `Link` header (RFC 8288), lead to the next page."""
    found, cursor = run_for_caller(request, find)
    response = json_response({**found, "next": cursor})
    if cursor is not None:
        following = request.url.include_query_params(cursor=cursor)
        response.headers["link"] = f'<{following.path}?{following.query}>; rel="next"'
    return response


def _unreadable(damaged: Damaged) -> list[str]:
    return [str(error) for error in damaged.values()]


def _refuse_damaged(damaged: Damaged) -> None:
    for error in damaged.values():
        raise error
