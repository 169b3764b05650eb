"""Renders the page's templates, with the headers that keep other sites and scripts out."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import msgspec
from fastapi import Request, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from eventbridge.api.host_paths import response_without_host_paths
from eventbridge.api.page.distance import distance
from eventbridge.api.page.session import NotLoggedIn, root
from eventbridge.api.refusal import Refused, refusal_of, refused

#: Nothing of other hosts; only the page's own server may show it in a frame, as Airflow does.
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
)
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}


class FormRefused(Refused):
    """A form with a wrong value: the page that has the form is shown again, with the reason."""

    def __init__(self, reason: Refused, template: str, values: dict[str, Any]) -> None:
        super().__init__(reason.status, reason.detail, reason.headers)
        self.template = template
        self.values = values


def render(request: Request, name: str, values: dict[str, Any], status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Return a page made of a template; every value is shown as text, whatever it holds."""
    framed = bool(getattr(request.app.state, "framed", False))
    mounted = str(request.scope.get("root_path", ""))
    given = {"root": root(request), "name": name, "framed": framed}
    # the server around this one, for links to its own pages
    given["outer"] = mounted.rpartition("/")[0] if framed else None
    text = response_without_host_paths(request, _templates().get_template(f"{name}.html").render(values, **given))
    # The one script is our own; where nobody frames the page there is none at all.
    headers = _HEADERS | {"content-security-policy": _POLICY + "; script-src 'self'" * framed}
    # What no UTF-8 can hold, half of a surrogate pair, is shown as a question mark.
    return Response(text.encode("utf-8", "replace"), status, headers, "text/html; charset=utf-8")


def asked_to_log_in(request: Request, error: Exception) -> Response:
    """Respond to a browser without a token that may look: the form, and why."""
    said, login = (error.said, error.login) if isinstance(error, NotLoggedIn) else ("", "")
    if login:
        return render(request, "elsewhere", {"said": said, "login": login}, HTTPStatus.UNAUTHORIZED)
    return render(request, "login", {"said": said}, HTTPStatus.UNAUTHORIZED)


def refused_in_words(request: Request, error: Exception) -> Response:
    """Return a refusal: below the page's root as a page, a form with a wrong value as its own page; else a problem."""
    if not f"{request.url.path}/".startswith(f"{root(request)}/"):
        return refused(request, error)
    refusal = refusal_of(request, error)
    if isinstance(refusal, FormRefused):
        return render(request, refusal.template, refusal.values | {"refused": refusal.detail}, refusal.status)
    values: dict[str, Any] = {"status": refusal.status, "said": refusal.detail, "back": _page_before(request)}
    if (found := getattr(request.state, "viewer", None)) is not None:
        values["viewer"] = found
    response = render(request, "error", values, refusal.status)
    response.headers.update(refusal.headers)
    return response


def _page_before(request: Request) -> str | None:
    """Return the path of the page of ours from which the browser came, None if it does not say, or came from others."""
    before = urlsplit(request.headers.get("referer", ""))
    ours = before.netloc == request.url.netloc and f"{before.path}/".startswith(f"{root(request)}/")
    return before.path + (f"?{before.query}" if before.query else "") if ours else None


@lru_cache
def _templates() -> Environment:
    found = Environment(
        loader=PackageLoader("eventbridge.api.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update(cell=_cell, ago=_ago, when=_when, pretty=_pretty, compact=_compact, short=_short)
    return found


def _cell(value: object) -> str:
    """Return a value as people read it; times in UTC to the second."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def _ago(value: datetime) -> str:
    """Return how long ago a time was, or in how long it is, by the clock of this host."""
    return distance(value, datetime.now(UTC))


def _when(value: datetime | None) -> Markup:
    """Return a time in UTC, and how long ago that was."""
    if value is None:
        return Markup("")
    return Markup('{} <span class="ago">{}</span>').format(_cell(value), _ago(value))


def _short(value: float) -> str:
    """Return a number for an axis."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"


def _pretty(text: str) -> str:
    """Return JSON indented, numbers as they were written; any other text as it is."""
    try:
        return msgspec.json.format(text, indent=2)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return text


def _compact(text: str) -> str:
    """Return JSON in one line, numbers as they were written; any other text as it is."""
    try:
        return msgspec.json.format(text, indent=0)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return text
