"""Calls the API in this process, without a socket, for tools that have the rights of a token or of a user.

Each tool is one call of the API, so scopes, owners, hidden payloads, limits and errors are those of the API. Three
calls exist only here: a pattern without a rule, a backtest without Spark, and the JSON Schema of rule files.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import Message

from eventbridge.api.access import reader
from eventbridge.api.app import create_mounted_app
from eventbridge.api.call_pools import run_expensive
from eventbridge.api.descriptions import described
from eventbridge.api.documents import document_response
from eventbridge.api.operations import TestCall, body_of_call
from eventbridge.api.operator_calls import document_of
from eventbridge.api.page.session import TokenGate
from eventbridge.api.payloads import HIDDEN, NEEDED, can_see_payloads
from eventbridge.api.refusal import CallRefused
from eventbridge.api.routes import JsonCall, TokenFirst
from eventbridge.control.backtest import BacktestRequest, backtest_here, is_rule_text
from eventbridge.control.try_pattern import PatternTried, try_pattern
from eventbridge.errors import RuleFileError, UserError
from eventbridge.event.json_document import write_document
from eventbridge.model.api import V1, ApiToken
from eventbridge.processes import time_limit
from eventbridge.routing.compile_process import compilation
from eventbridge.rules.json_schema import rule_file_schema as read_rule_file_schema
from eventbridge.runtime.runtime import Runtime

#: The maximum number of archived events that a backtest reads, and its maximum time in seconds. Clients end a call
#: after 60 seconds by default.
MAX_BACKTESTED: Final = 100_000
BACKTEST_SECONDS: Final = 30.0
#: The maximum length of a rule file to backtest, in characters.
MAX_CANDIDATE: Final = 256 * 1024
#: The maximum number of samples of each kind in the report of a backtest.
MAX_SAMPLES: Final = 10

router = APIRouter(prefix=V1, route_class=JsonCall, default_response_class=Response, dependencies=[Depends(reader)])
_callers = APIRouter(prefix=V1, route_class=TokenFirst)


class PatternCall(TestCall):
    """An event, and a rule, a pattern, or both."""

    rule: str = Field("", description="The rule whose pattern is tested, and whose requests are rendered.")


class BacktestCall(BaseModel):
    """The rules to run, and the part of the archive to run them over."""

    model_config = ConfigDict(extra="forbid")

    candidate: str = Field(max_length=MAX_CANDIDATE)
    since: str = Field("1h", alias="from")
    until: str = Field("", alias="to")
    bus: str = ""
    samples: int = Field(3, ge=0, le=MAX_SAMPLES)


@_callers.get("/rule-file-schema", dependencies=[Depends(reader)], operation_id="get_rule_file_schema")
def rule_file_schema() -> dict[str, Any]:
    """Return the JSON Schema of rule files."""
    return read_rule_file_schema()


@_callers.get("/caller", dependencies=[Depends(reader)], include_in_schema=False)
async def check_caller() -> Response:
    """Return 204 to a caller whose token has the scope `read`."""
    return Response(status_code=HTTPStatus.NO_CONTENT)


@router.post("/patterns/test", **described("test_pattern", "rules", PatternTried))
async def test_pattern(request: Request, call: PatternCall) -> Response:
    """Return which conditions an event meets. Nothing is sent or stored."""
    content = await request.body()

    def tried(runtime: Runtime) -> Any:
        written = document_of(content)  # numbers as written
        pattern = write_document(written["pattern"]) if call.pattern is not None else ""
        return try_pattern(runtime, call.rule, pattern, body_of_call(request, runtime, call, written))

    return await run_expensive(request, lambda: document_response(request, tried))


@router.post("/rules/backtest", **described("backtest_rules", "rules", dict[str, Any]))
async def backtest_rules(request: Request, call: BacktestCall) -> Response:
    """Return what rules would deliver from archived events. Nothing is sent or stored.

    Without the `payloads` scope, there are no samples, errors of transforms are hidden, and the text of a rule file is
    refused.
    """
    shown = can_see_payloads(request)
    if is_rule_text(call.candidate) and not shown:
        raise CallRefused(
            HTTPStatus.FORBIDDEN,
            f"A condition on payloads reveals their content: the text of a rule file needs {NEEDED}. Name a rule in "
            "force instead, or test the pattern on events that you write",
            code="payloads_required",
        )
    wanted = BacktestRequest(call.since, call.until or None, call.bus or None, call.samples if shown else 0)

    def backtested(runtime: Runtime) -> Any:
        compilation.wait()
        try:
            with time_limit(BACKTEST_SECONDS):
                report = msgspec.to_builtins(backtest_here(runtime, call.candidate, wanted, MAX_BACKTESTED))
        except RuleFileError as error:
            raise (UserError(str(error)) if is_rule_text(call.candidate) else error) from None
        return report if shown else _without_errors(report)

    return await run_expensive(request, lambda: document_response(request, backtested))


def _without_errors(report: dict[str, Any]) -> dict[str, Any]:
    """Return a report without the errors of transforms, because they may quote an event."""
    for target in (target for rule in report["rules"] for target in rule["targets"]):
        target["failures"] = [each | {"text": each["text"] and HIDDEN} for each in target["failures"]]
    return report


class UserGate(TokenGate):
    """Gives every caller the rights of the user who runs this process."""

    def __init__(self, user: str, scopes: Collection[str]) -> None:
        self._rights = ApiToken(user, tuple(scopes), datetime.now(UTC))

    async def rights_of_user(self, request: Request) -> ApiToken | None:
        """Return the rights of the user."""
        return self._rights


class ApiResponse(NamedTuple):
    """The response to a call of the API."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes


class Api:
    """The API of an installation, called in this process."""

    def __init__(self, open_runtime: Callable[[], Runtime], gate: TokenGate) -> None:
        self.app: FastAPI = create_mounted_app(open_runtime, gate)
        for own in (router, _callers):
            self.app.include_router(own)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open the application, and close it at the end, which cancels calls in progress."""
        async with self.app.router.lifespan_context(self.app):
            yield

    async def call(
        self, method: str, path: str, query: Mapping[str, Any], content: bytes, authorization: Collection[str]
    ) -> ApiResponse:
        """Make a call, and return its response; cancelling this call cancels that of the API.

        `authorization` holds the values of the caller's header `Authorization`.
        """
        headers = [(b"host", b"mcp"), *((b"authorization", each.encode("latin-1")) for each in authorization)]
        if content:
            headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": quote(path).encode(),
            "query_string": urlencode(query).encode(),
            "root_path": "",
            "headers": headers,
            "server": ("mcp", 80),
            "client": None,
        }
        has_ended = asyncio.Event()
        body = iter((content,))
        parts: list[Message] = []

        async def receive() -> Message:
            for part in body:
                return {"type": "http.request", "body": part, "more_body": False}
            await has_ended.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            parts.append(message)

        try:
            await self.app(scope, receive, send)
        finally:
            has_ended.set()
        return ApiResponse(
            parts[0]["status"], dict(parts[0]["headers"]), b"".join(each.get("body", b"") for each in parts[1:])
        )
