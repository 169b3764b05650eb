"""What can be looked at: the documents that the command line prints with `--json`, from the same functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from eventbridge.api.access import reader
from eventbridge.api.host_paths import response_without_host_paths
from eventbridge.api.owners import seen
from eventbridge.api.payloads import dead_letter_seen, groups_seen, rule_on_hold_seen, shows_payloads, why_seen
from eventbridge.api.refusal import PROBLEM, Refused
from eventbridge.api.token_first import TokenFirst
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
from eventbridge.event.plain import plain
from eventbridge.rule.content import content_of
from eventbridge.stages.dead_letters.files import Damaged
from eventbridge.stages.dead_letters.reader import (
    DeadLetterName,
    DeadLetterPage,
    dead_letter_page,
    find_dead_letters,
    read_dead_letter,
    whole_dead_letters,
)
from eventbridge.stages.dead_letters.selection import WrittenSelection, name_of
from eventbridge.stages.operate.audit import audit as audited
from eventbridge.stages.operate.audit import find_batch
from eventbridge.stages.operate.find import find_rule
from eventbridge.stages.operate.rule_history import rule_versions as versions_of
from eventbridge.stages.operate.status import status as status_of
from eventbridge.stages.operate.status import status_fields
from eventbridge.stages.operate.why import why_between
from eventbridge.stages.runtime.runtime import Runtime

#: Dead letters that one call returns at most.
MOST_DEAD_LETTERS = 500
#: Those of which one call returns everything: events may be large.
MOST_WHOLE = 20
#: Batches that one call audits at most.
MOST_AUDITED = 1_000

_STATUSES = {
    400: "A value cannot be read.",
    401: "No token, or one that is unknown, revoked or expired.",
    403: "The token has no scope read.",
    404: "There is no such thing.",
    422: "A value is out of its range.",
    503: "The ledger, the store or the rules fail; try again after Retry-After.",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "What is known.", "content": {"application/json": {"schema": {}}}},
    **{status: {"description": said, **PROBLEM} for status, said in _STATUSES.items()},
}

router = APIRouter(
    route_class=TokenFirst,
    dependencies=[Depends(reader)],
    default_response_class=Response,
    responses=RESPONSES,
)

Time = Annotated[str | None, Query(description="ISO 8601, in UTC unless it says otherwise, or an age such as 2h.")]


@router.get("/status", summary="Tell how every runner stands")
def status(request: Request, batches: Annotated[int, Query(ge=0, le=1_000)] = 10) -> Response:
    """Return lag, in flight, available and flow of each partition, the newest batches, and what is not well."""

    def found(runtime: Runtime) -> dict[str, Any]:
        told = status_of(runtime, batches=batches)
        return status_fields(
            replace(told, rules_on_hold=tuple(rule_on_hold_seen(request, each) for each in told.rules_on_hold))
        )

    return document(request, found)


@router.get("/rules/{rule}", summary="Tell one rule")
def rule(request: Request, rule: Annotated[str, Path(description="The name of a rule.")]) -> Response:
    """Return a rule of today with everything that was left out filled in."""
    return document(request, lambda runtime: rule_document(runtime, rule))


@router.get("/rules/{rule}/versions", summary="Tell the versions of a rule")
def rule_versions(request: Request, rule: Annotated[str, Path(description="The name of a rule.")]) -> Response:
    """Return its newest versions, at most 10: since when each was in force, and what it changed as a diff."""
    return document(request, lambda runtime: versions_of(runtime, find_rule(runtime.rule_set(), rule).name))


Cursor = Annotated[str | None, Query(description="What the page before gave; none: the first page.")]


@dataclass(frozen=True)
class DeadLetterQuery:
    """The parameters that choose dead letters: those that fit every one that is given."""

    rule: Annotated[str | None, Query(description="Only those of this rule.")] = None
    target: Annotated[str | None, Query(description="Only those of targets of this name.")] = None
    reason: Annotated[str | None, Query(description="Only those with this reason, such as NonRetryable.")] = None
    error: Annotated[str | None, Query(description="Only those whose detail or attempts' errors have it.")] = None
    since: Time = None
    until: Time = None
    limit: Annotated[int, Query(ge=1, le=MOST_DEAD_LETTERS, description="How many to return at most.")] = 50
    cursor: Cursor = None

    def letters(
        self, request: Request, runtime: Runtime, most: int = MOST_DEAD_LETTERS
    ) -> tuple[DeadLetterPage, Damaged]:
        """Return the dead letters that it chooses, without their long columns, at most so many; and what is unreadable.

        A file that cannot be read hides no other one. `error` is looked for in what the caller may see.
        """
        wanted = WrittenSelection(self.rule, self.target, self.reason, self.error, self.since, self.until)
        damaged: Damaged = {}
        limit = min(most, self.limit)
        chosen = wanted.read(runtime.clock(), payloads=shows_payloads(request))
        found = dead_letter_page(runtime, chosen, limit, self.cursor or None, damaged=damaged)
        return found, damaged


@router.get("/dead-letters", summary="List dead letters")
def dead_letters(
    request: Request,
    query: Annotated[DeadLetterQuery, Depends()],
    whole: Annotated[
        bool, Query(description=f"Each with event, request and every attempt, at most {MOST_WHOLE} a call.")
    ] = False,
) -> Response:
    """Return dead letters, those of the newest batch first, each with its name; `cursor`: send it for what follows.

    One call reads at most 100 files: it may return few, or none, and a cursor all the same; `unreadable` says which of
    them could not be read. Without the scope payloads, event, request and responses are hidden, and so is
    a detail that may quote the event.
    """

    def listed(runtime: Runtime) -> dict[str, Any]:
        found, damaged = query.letters(request, runtime, MOST_WHOLE if whole else MOST_DEAD_LETTERS)
        if whole:
            told = [
                dead_letter_seen(request, named(each)) for each in whole_dead_letters(runtime, found.letters, damaged)
            ]
        else:
            told = [dead_letter_seen(request, named(each)) for each in found.records()]
        return {"dead_letters": told, "unreadable": _unreadable(damaged)} | _following(found)

    return document(request, listed)


@router.get("/dead-letter-groups", summary="Count dead letters by rule, target, reason and error")
def dead_letter_groups(request: Request, query: Annotated[DeadLetterQuery, Depends()]) -> Response:
    """Return how many of a page of dead letters are of each rule, target, reason and beginning of the error.

    `cursor`: send it for the groups of what follows.
    """

    def counted(runtime: Runtime) -> dict[str, Any]:
        found, damaged = query.letters(request, runtime)
        seen = [dead_letter_seen(request, each) for each in found.records()]
        return {"groups": groups_seen(seen), "unreadable": _unreadable(damaged)} | _following(found)

    return document(request, counted)


@router.get("/dead-letters/{name:path}", summary="Tell one dead letter whole")
def dead_letter(
    request: Request,
    name: Annotated[str, Path(description="A name from the list, a delivery id, or a place of an event.")],
) -> Response:
    """Return one dead letter: the event, the request as transformed, every attempt.

    A delivery id or a place names the newest of its dead letters.

    Without the scope payloads, event, request and responses are hidden, and so is
    a detail that may quote the event.
    """
    return document(request, lambda runtime: dead_letter_seen(request, named(dead_letter_document(runtime, name))))


@router.get("/events/{event_id:path}", summary="Tell what became of an event")
def event(
    request: Request,
    event_id: Annotated[str, Path(description="The id of the event.")],
    bus: Annotated[str | None, Query(description="Only on this bus.")] = None,
    since: Time = None,
    until: Time = None,
) -> Response:
    """Return where an event lies, what each rule says to it, every delivery and every attempt.

    Without the scope payloads, what its fields hold and what targets responded is hidden.
    """
    return document(request, lambda runtime: why_seen(request, why_between(runtime, event_id, bus, since, until)))


@router.get("/audit", summary="Recompute the reconciliation")
def audit(
    request: Request,
    batch: Annotated[str | None, Query(description="Only this batch; the beginning of its id.")] = None,
) -> Response:
    """Return the reconciliation of every committed batch, recomputed from the store, with every difference; it takes a
    while.

    Of all batches only while there are at most 1,000: `eventbridge audit` has no limit.
    """

    def found(runtime: Runtime) -> Any:
        if batch is not None:
            return audited(runtime, find_batch(runtime, batch))
        if len(runtime.ledger.batches(limit=MOST_AUDITED + 1)) > MOST_AUDITED:
            raise UserError(
                f"there are more than {MOST_AUDITED} batches. Name one by batch=, or run `eventbridge audit`"
            )
        return audited(runtime)

    return document(request, found)


def rule_document(runtime: Runtime, name: str) -> dict[str, Any]:
    """Return a rule of today as JSON, numbers as they were written; raises NotFoundError."""
    document: Any = parse_document(write_document(content_of(find_rule(runtime.rule_set(), name))))
    return dict(document)


def dead_letter_document(runtime: Runtime, name: str) -> dict[str, Any]:
    """Return the newest dead letter of a name, whole; raises NotFoundError, UserError for what is not a name."""
    place = dead_letter_place(runtime, name)
    return read_dead_letter(runtime, place.file, place.row)


def dead_letter_place(runtime: Runtime, name: str) -> DeadLetterName:
    """Return where the newest dead letter of a name lies; raises NotFoundError, UserError for what is not a name."""
    damaged: Damaged = {}
    try:
        newest, *_ = find_dead_letters(runtime, name, damaged)
    except NotFoundError:
        _refuse_damaged(damaged)  # it may be in one of those
        raise
    return newest


def named(record: dict[str, Any]) -> dict[str, Any]:
    """Return a dead letter with its name, its delivery id as text."""
    delivery = record.get("delivery_id")
    text = None if delivery is None else delivery_id_text(delivery)
    return {"name": name_of(record)} | record | {"delivery_id": text}


def run_for_caller(request: Request, find: Callable[[Runtime], Any]) -> Any:
    """Return what `find` finds in the installation, as the caller sees it.

    Raises Refused where the caller's own words are wrong, and for what a caller who is limited to owners may not see.
    """
    if "\0" in request.scope["path"] or b"%00" in request.scope["query_string"]:  # some databases take none
        raise Refused(HTTPStatus.BAD_REQUEST, "The address holds the character NUL, which is in no name and no id")
    state = request.app.state
    runtime = seen(request, state.looking if request.method in ("GET", "HEAD") else state.acting)
    try:
        return find(runtime)
    except (NotFoundError, RuleFileError, SettingsError, PackageMissing, TypeUnusable, ConnectionUnusable):
        raise  # but for what was not found they are errors of whoever set the server up
    except UserError as error:
        raise Refused(HTTPStatus.BAD_REQUEST, str(error)) from None


def document(request: Request, find: Callable[[Runtime], Any]) -> Response:
    """Return what `find` finds as JSON; see `run_for_caller`."""
    return written(request, run_for_caller(request, find))


def written(request: Request, found: Any) -> Response:
    """Return what was found as JSON."""
    text = response_without_host_paths(request, write_document(plain(found)))
    return Response(text, media_type="application/json")


def _following(found: DeadLetterPage) -> dict[str, Any]:
    return {"more": found.cursor is not None, "cursor": found.cursor}


def _unreadable(damaged: Damaged) -> list[str]:
    return [str(error) for error in damaged.values()]


def _refuse_damaged(damaged: Damaged) -> None:
    for error in damaged.values():
        raise error
