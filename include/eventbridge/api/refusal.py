"""What the API refuses, told as RFC 9457 (application/problem+json): what was wrong, and what to do."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from eventbridge.api.host_paths import without_host_paths
from eventbridge.errors import InfrastructureError, NotFoundError, OperatorError, UserError
from eventbridge.event.json_document import write_document

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"

#: When a caller may try again what a disk, a database or a bus failed at.
RETRY_SECONDS = 5

#: Files, connections and addresses of an installation are nothing to somebody who has not shown who it is.
_UNTOLD = (
    "The server cannot serve this call now. Send it again after Retry-After; if that does not help, ask whoever runs "
    "the server: its log says what is wrong. Nothing was published"
)
_NO_CALL = "No call has this method and address. `eventbridge serve` lists them all at /openapi.json"


class Problem(BaseModel):
    """Why a call was refused; nothing of it was published unless `detail` says that this is not known."""

    title: str = Field(description="The status in words.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What was wrong, and what to do.")


#: How a problem is described in openapi.json.
PROBLEM: dict[str, Any] = {"content": {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}}


class Refused(Exception):
    """A call whose response is a problem."""

    def __init__(self, status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})


def believed(request: Request) -> None:
    """Note that a call has shown who makes it: it may be told what is wrong with the installation."""
    request.state.believed = True


def refused(request: Request, error: Exception) -> Response:
    """Respond to a call that was refused, or whose error has a better name than 500."""
    told = refusal_of(request, error)
    problem = {"title": told.status.phrase, "status": int(told.status), "detail": told.detail}
    # write_document: a name that a caller gave may hold half of a surrogate pair
    return Response(write_document(problem), told.status, told.headers, MEDIA_TYPE)


def refusal_of(request: Request, error: Exception) -> Refused:
    """Return what a call is refused with; raises the error itself where it has no better name than 500."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, RequestValidationError):
        return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, _wrong(error))
    if isinstance(error, HTTPException):  # the framework's own: a path or method that is none
        said = _NO_CALL if error.status_code in (404, 405) else error.detail
        return Refused(HTTPStatus(error.status_code), said, error.headers)
    known = getattr(request.state, "believed", False)
    if isinstance(error, NotFoundError) and known:
        return Refused(HTTPStatus.NOT_FOUND, str(error))
    # a UserError here is an error of whoever set the server up: a rule file, a connection
    if isinstance(error, InfrastructureError | OperatorError | UserError):
        if not known:
            log.error("%s %s: %s", request.method, request.url.path, error)
        detail = without_host_paths(request, str(error)) if known else _UNTOLD
        return Refused(HTTPStatus.SERVICE_UNAVAILABLE, detail, {"retry-after": str(RETRY_SECONDS)})
    raise error


def _wrong(error: RequestValidationError) -> str:
    """Say which values are wrong; a body that is no JSON document has but one fault."""
    found = error.errors()
    if any(tuple(each["loc"]) == ("body",) and isinstance(each.get("input"), bytes) for each in found):
        return "The body is not taken for JSON. Send it with Content-Type: application/json"
    return "A value is not as openapi.json says: " + "; ".join(f"{each['loc'][-1]}: {each['msg']}" for each in found)
