"""Turns refused calls into problem details (RFC 9457), which say what was wrong and what to do."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from eventbridge.errors import InfrastructureError, NotFoundError, OperatorError, UserError
from eventbridge.event.json_document import write_document

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"

#: How many seconds a caller should wait before it tries again, after a disk, a database or a bus failed.
RETRY_SECONDS = 5

#: The detail for callers that are not authenticated, who must not learn names of files, connections and addresses.
_WITHHELD = (
    "The server cannot serve this call now. Send it again after the delay in Retry-After. If it fails again, ask the "
    "administrator of the server: its log has the reason. Nothing was published"
)
_NO_CALL = "No call has this method and path. `eventbridge serve` lists all calls at /openapi.json"


class Problem(BaseModel):
    """Why a call was refused. Nothing was published, unless `detail` says that this is unknown."""

    title: str = Field(description="The name of the status.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What was wrong, and what to do.")


#: The description of a problem in openapi.json.
PROBLEM: dict[str, Any] = {"content": {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}}


class CallRefused(Exception):
    """A refused call; its response is a problem document."""

    def __init__(self, status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})


def mark_authenticated(request: Request) -> None:
    """Record that the caller is authenticated, and therefore may see errors of the installation."""
    request.state.is_authenticated = True


def problem_response(request: Request, error: Exception) -> Response:
    """Return the problem response for an error; raises the error if no status but 500 fits."""
    refusal = refusal_of(request, error)
    problem = {"title": refusal.status.phrase, "status": int(refusal.status), "detail": refusal.detail}
    # `write_document`, because a name from the caller may hold half of a surrogate pair
    return Response(write_document(problem), refusal.status, refusal.headers, MEDIA_TYPE)


def refusal_of(request: Request, error: Exception) -> CallRefused:
    """Return the refusal for an error; raises the error itself if no status but 500 fits."""
    if isinstance(error, CallRefused):
        return error
    if isinstance(error, RequestValidationError):
        return CallRefused(HTTPStatus.UNPROCESSABLE_ENTITY, _validation_message(error))
    if isinstance(error, HTTPException):  # from the framework: an unknown path or method
        detail = _NO_CALL if error.status_code in (404, 405) else error.detail
        return CallRefused(HTTPStatus(error.status_code), detail, error.headers)
    known = getattr(request.state, "is_authenticated", False)
    if isinstance(error, NotFoundError) and known:
        return CallRefused(HTTPStatus.NOT_FOUND, str(error))
    # a UserError here is an error in the server's configuration: a rule file, a connection
    if isinstance(error, InfrastructureError | OperatorError | UserError):
        if not known:
            log.error("%s %s: %s", request.method, request.url.path, error)
        detail = str(error) if known else _WITHHELD
        return CallRefused(HTTPStatus.SERVICE_UNAVAILABLE, detail, {"retry-after": str(RETRY_SECONDS)})
    raise error


def _validation_message(error: RequestValidationError) -> str:
    """Return the message that names the wrong values, or says that the body was not read as JSON."""
    found = error.errors()
    if any(tuple(each["loc"]) == ("body",) and isinstance(each.get("input"), bytes) for each in found):
        return "The body was not read as JSON. Send it with Content-Type: application/json"
    return "A value does not match openapi.json: " + "; ".join(f"{each['loc'][-1]}: {each['msg']}" for each in found)
