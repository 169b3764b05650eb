"""The codes of refused calls: what each one means, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Literal

#: The kinds of described calls: those that only read, those that change something, publishing, and webhooks.
Kind = Literal["read", "change", "publish", "webhook"]
_ALL: Final[tuple[Kind, ...]] = ("read", "change", "publish", "webhook")
_WITH_BODY: Final[tuple[Kind, ...]] = ("change", "publish", "webhook")
_REPEATABLE: Final[tuple[Kind, ...]] = ("change", "publish")


@dataclass(frozen=True)
class ErrorCode:
    """A code of a problem document, with its status, what it means, what to do, and which kinds of calls return it."""

    status: HTTPStatus
    meaning: str
    remedy: str
    calls: tuple[Kind, ...] = _ALL


_S = HTTPStatus
_LATER = "Send the call again after the delay in `Retry-After`."
CODES: Final[dict[str, ErrorCode]] = {
    "invalid_value": ErrorCode(
        _S.BAD_REQUEST,
        "A value of the call is malformed, or contradicts another one.",
        "Correct the value that `detail` names.",
    ),
    "invalid_body": ErrorCode(
        _S.BAD_REQUEST,
        "The body cannot be read, or holds no event.",
        "Compare the body with its `Content-Type` and `Content-Encoding`; `detail` names the difference.",
        calls=_WITH_BODY,
    ),
    "upgrade_refused": ErrorCode(
        _S.BAD_REQUEST,
        "The call offers an upgrade to another protocol, so Airflow's server may lose its body.",
        "Send the call without the header `Upgrade`, for example by `curl --http1.1`.",
        calls=_WITH_BODY,
    ),
    "token_required": ErrorCode(
        _S.UNAUTHORIZED, "The call has no token.", "Send the header `Authorization: Bearer ebt_...`."
    ),
    "token_invalid": ErrorCode(
        _S.UNAUTHORIZED,
        "The token is unknown, revoked or expired.",
        "Create a token with `eventbridge tokens create`.",
    ),
    "forbidden": ErrorCode(
        _S.FORBIDDEN,
        "The caller may not make this call.",
        "Use a token with the right that `detail` names.",
        calls=("read", "change", "publish"),
    ),
    "scope_required": ErrorCode(
        _S.FORBIDDEN,
        "The token lacks the scope of this call.",
        "Create a token with the scope that `detail` names.",
        calls=("read", "change", "publish"),
    ),
    "owner_required": ErrorCode(
        _S.FORBIDDEN,
        "The token is limited to certain owners, and the call concerns other owners.",
        "Use a token of that owner, or one without owners.",
        calls=("read", "change", "publish"),
    ),
    "payloads_required": ErrorCode(
        _S.FORBIDDEN,
        "The call shows payloads, or has a condition on them.",
        "Use a token with the scope `payloads`, or omit the condition.",
        calls=("read", "change"),
    ),
    "webhook_rejected": ErrorCode(
        _S.FORBIDDEN,
        "No webhook of this name accepts this signature.",
        "Check the name, the secret and the clock. The log of the server has the reason.",
        calls=("webhook",),
    ),
    "not_found": ErrorCode(
        _S.NOT_FOUND,
        "The rule, target, bus, event or record does not exist, or the caller may not see it.",
        "Check the name against the list of its kind.",
    ),
    "no_such_call": ErrorCode(
        _S.NOT_FOUND, "No call has this path.", "Compare the path with `/openapi.json`; it begins with `/v1`.", calls=()
    ),
    "method_not_allowed": ErrorCode(
        _S.METHOD_NOT_ALLOWED, "The path has no such method.", "Use a method of the header `Allow`."
    ),
    "body_timeout": ErrorCode(_S.REQUEST_TIMEOUT, "The body did not arrive in time.", "Send fewer events in a call."),
    "call_in_progress": ErrorCode(
        _S.CONFLICT, "A call with the same `Idempotency-Key` is in progress.", _LATER, calls=_REPEATABLE
    ),
    "body_too_large": ErrorCode(
        _S.REQUEST_ENTITY_TOO_LARGE,
        "The body, or the number of its events, exceeds a limit.",
        "Split the events over several calls.",
    ),
    "unsupported_media_type": ErrorCode(
        _S.UNSUPPORTED_MEDIA_TYPE,
        "The content type or the content coding is not supported.",
        "Use a content type that `detail` names.",
    ),
    "invalid_request": ErrorCode(
        _S.UNPROCESSABLE_ENTITY,
        "A value does not match `/openapi.json`.",
        "Correct the values in `errors`.",
    ),
    "idempotency_key_reused": ErrorCode(
        _S.UNPROCESSABLE_ENTITY,
        "The `Idempotency-Key` was used for another call.",
        "Use a new key for each call.",
        calls=_REPEATABLE,
    ),
    "bus_not_accepting": ErrorCode(
        _S.TOO_MANY_REQUESTS,
        "The bus is not accepting events, because of disk space, store size, backlog or an owner's quota.",
        _LATER,
        calls=("publish", "webhook"),
    ),
    "internal_error": ErrorCode(
        _S.INTERNAL_SERVER_ERROR, "The server has a defect.", "Report the defect with the log of the server."
    ),
    "unsupported_transfer_coding": ErrorCode(
        _S.NOT_IMPLEMENTED,
        "The `Transfer-Encoding` is not `chunked`.",
        "Send the body without one, or as `chunked`.",
    ),
    "unavailable": ErrorCode(
        _S.SERVICE_UNAVAILABLE,
        "The ledger, the store, a bus or the rule files fail. Events may or may not be on the bus.",
        f"{_LATER} If it fails again, read the log of the server.",
    ),
    "server_busy": ErrorCode(
        _S.SERVICE_UNAVAILABLE, "Too many calls of this kind are in progress. Nothing was done.", _LATER
    ),
}

#: The code of a refusal that names none, by status.
BY_STATUS: Final = {each.status: code for code, each in reversed(CODES.items())}


def code_of(status: HTTPStatus) -> str:
    """Return the general code of a status."""
    return BY_STATUS.get(status, "invalid_request" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "internal_error")
