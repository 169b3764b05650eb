"""Turns refused calls into problem details (RFC 9457), which say what was wrong and what to do."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from eventbridge.api.error_codes import CODES, code_of
from eventbridge.errors import InfrastructureError, NotFoundError, OperatorError, RuleFileError, UserError
from eventbridge.event.json_document import write_document

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"

#: The number of seconds that a caller should wait before it tries again, after a disk, a database or a bus failed.
RETRY_SECONDS = 5

#: The detail for callers that are not authenticated, who must not learn names of files, connections and addresses.
_WITHHELD = (
    "The server cannot serve this call now. Send it again after the delay in Retry-After. If it fails again, ask the "
    "administrator of the server: its log has the reason. Nothing was published"
)
_RULES_WITHHELD = (
    "The server cannot serve this call, because the rule files have errors. The operator of the server sees them with "
    "`eventbridge rules check`. Nothing was published"
)
_NO_CALL = "No call has this method and path. `eventbridge serve` lists all calls at /openapi.json"


class FieldError(BaseModel):
    """One wrong value: its place in the call or in a rule file, what is wrong and, if known, what to do."""

    location: str = Field(description="Such as `body.rate`, `query.limit` or `orders.yaml:4:7`.")
    message: str
    remedy: str | None = None


class Problem(BaseModel):
    """The reason why a call was refused. Nothing was published, unless `detail` says that this is unknown."""

    type: str = Field(description="The URL of the page that describes the code.")
    code: str = Field(description="What was wrong, for programs.", json_schema_extra={"enum": list(CODES)})
    title: str = Field(description="The name of the status.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="What was wrong with this call, and what to do.")
    remedy: str = Field(description="What to do about this code in general.")
    errors: list[FieldError] | None = Field(None, description="The wrong values, if the call has several parts.")


#: The page that describes the codes, below the root of the server.
ERRORS_PAGE = "/page/errors"
#: The maximum number of wrong values that a problem names.
_MAX_ERRORS = 20

#: The description of a problem in openapi.json.
PROBLEM: dict[str, Any] = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}


class CallRefused(Exception):
    """A refused call; its response is a problem document."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        headers: Mapping[str, str] | None = None,
        *,
        code: str = "",
        errors: Sequence[FieldError] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})
        self.code = code or code_of(status)
        self.remedy = CODES[self.code].remedy
        self.errors = errors


class BodyRefused(HTTPException):
    """A body that cannot be read. The framework turns every error but HTTPException into one without a reason."""

    code = "invalid_body"


def mark_authenticated(request: Request, *, sees_rules: bool = True, sees_failures: bool = True) -> None:
    """Record that the caller is authenticated, and may see errors of the installation, of rule files if `sees_rules`.

    Rule files may belong to several owners, so a caller that may only publish sees none of their text. A caller from
    outside the team, without `sees_failures`, sees neither these nor names of files, connections and addresses.
    """
    request.state.is_authenticated = True
    request.state.sees_rules = sees_rules
    request.state.sees_failures = sees_failures


def problem_response(request: Request, error: Exception) -> Response:
    """Return the problem response for an error. Raises the error if no status but 500 fits."""
    refusal = refusal_of(request, error)
    problem: dict[str, Any] = {
        "type": f"{request.scope.get('root_path', '')}{ERRORS_PAGE}#{refusal.code}",
        "code": refusal.code,
        "title": refusal.status.phrase,
        "status": int(refusal.status),
        "detail": refusal.detail,
        "remedy": refusal.remedy,
    }
    if refusal.errors:
        problem["errors"] = [each.model_dump(exclude_none=True) for each in refusal.errors]
    # `write_document`, because a name from the caller may hold half of a surrogate pair
    return Response(write_document(problem), refusal.status, refusal.headers, MEDIA_TYPE)


def refusal_of(request: Request, error: Exception) -> CallRefused:
    """Return the refusal for an error. Raises the error itself if no status but 500 fits."""
    if isinstance(error, CallRefused):
        return error
    if isinstance(error, RequestValidationError):
        errors = [
            FieldError(location=".".join(map(str, each["loc"])), message=str(each["msg"])) for each in error.errors()
        ]
        detail = _validation_message(error)
        return CallRefused(HTTPStatus.UNPROCESSABLE_ENTITY, detail, errors=errors[:_MAX_ERRORS])
    if isinstance(error, ClientDisconnect):  # nobody reads this response; it avoids a traceback in the log
        return CallRefused(HTTPStatus.BAD_REQUEST, "The body ended early. Nothing was changed", code="invalid_body")
    if isinstance(error, HTTPException):  # from the framework: an unknown path or method
        detail = _NO_CALL if error.status_code in (404, 405) else error.detail
        code = "no_such_call" if error.status_code == HTTPStatus.NOT_FOUND else getattr(error, "code", "")
        return CallRefused(HTTPStatus(error.status_code), detail, error.headers, code=code)
    known = getattr(request.state, "is_authenticated", False)
    if isinstance(error, NotFoundError) and known:
        return CallRefused(HTTPStatus.NOT_FOUND, str(error))
    # a UserError here is an error in the server's configuration: a rule file, a connection
    if isinstance(error, InfrastructureError | OperatorError | UserError):
        of_rules = isinstance(error, RuleFileError)
        known = known and request.state.sees_failures
        shown = known and (request.state.sees_rules or not of_rules)
        if not shown:
            log.error("%s %s: %s", request.method, request.url.path, error)
        detail = str(error) if shown else _RULES_WITHHELD if known else _WITHHELD
        errors = _rule_errors(error) if shown and isinstance(error, RuleFileError) else []
        headers = {"retry-after": str(RETRY_SECONDS)}
        return CallRefused(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers, errors=errors)
    raise error


def _rule_errors(error: RuleFileError) -> list[FieldError]:
    """Return the errors of rule files with their positions."""
    return [
        FieldError(
            location=f"{each.file}:{each.line}:{each.column}: {each.path}", message=each.message, remedy=each.remedy
        )
        for each in error.errors[:_MAX_ERRORS]
    ]


def _validation_message(error: RequestValidationError) -> str:
    """Return the message that names the wrong values, or says that the body was not read as JSON."""
    found = error.errors()
    if any(tuple(each["loc"]) == ("body",) and isinstance(each.get("input"), bytes) for each in found):
        return "The body was not read as JSON. Send it with Content-Type: application/json"
    return "A value does not match openapi.json: " + "; ".join(f"{each['loc'][-1]}: {each['msg']}" for each in found)
