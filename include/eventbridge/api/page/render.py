"""Renders the templates of the page, with headers that keep out other sites and foreign scripts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from fastapi import Request, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from eventbridge.api.page.period import kept_parameters, period_of
from eventbridge.api.page.session import NotLoggedIn, root
from eventbridge.api.refusal import CallRefused, problem_response, refusal_of
from eventbridge.model.form_labels import AS_OF_LABELS, IDS_LABELS, REDRIVE_LABELS, REPLAY_LABELS

#: Nothing is loaded from other hosts, and all scripts are EventBridge's own files; only the page's own server may frame
#: it, as Airflow does, and the sites that may embed the portal.
#: The icon is a `data:` image within each page, so that it costs no request.
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
)
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}


#: The entries of the portal's navigation, and the forms of its sessions, by their paths.
NAVIGATION: Final = frozenset({"", "events", "targets", "dead-letters", "rules"})
_OWN_PATHS: Final = ("/open", "/logout")


class FormRefused(CallRefused):
    """A form with a wrong value; its page is shown again, with the reason."""

    def __init__(self, reason: CallRefused, template: str, values: dict[str, Any]) -> None:
        super().__init__(reason.status, reason.detail, reason.headers)
        self.template = template
        self.values = values


def render(request: Request, name: str, values: dict[str, Any], status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Return the page of a template; every value is escaped."""
    framed = bool(getattr(request.app.state, "framed", False))
    mounted = str(request.scope.get("root_path", ""))
    given: dict[str, Any] = {"root": root(request), "name": name, "framed": framed}
    given |= {
        "attention": getattr(request.state, "attention", {}),
        "period": period_of(request),
        "kept": kept_parameters(request),
        "done": request.query_params.get("done", ""),
        "of": request.query_params.get("of", ""),
    }
    # the server that mounts this one, for links to its pages
    given["outer"] = mounted.rpartition("/")[0] if framed else None
    offered: list[re.Pattern[str]] | None = getattr(request.app.state, "offered", None)
    given["offered"] = None if offered is None else NAVIGATION
    text = _templates().get_template(f"{name}.html").render(given | values)
    policy = _POLICY
    if offered is not None:
        text = _without_others(text, given["root"], offered)
        policy = " ".join([_POLICY, *request.app.state.runtime.settings.portal_origins])
    headers = _HEADERS | {"content-security-policy": policy}
    # Half of a surrogate pair, which UTF-8 cannot hold, is shown as a question mark.
    return Response(text.encode("utf-8", "replace"), status, headers, "text/html; charset=utf-8")


#: The links and forms of a page that lead below its root, which `{}` stands for.
_LEADING: Final = r'<a\b(?P<link>[^>]*)\bhref="{0}(?P<href>[^"]*)"[^>]*>(?P<text>.*?)</a>' + (
    r'|<form\b[^>]*\baction="{0}(?P<action>[^"]*)"[^>]*>.*?</form>'
)


def _without_others(text: str, root: str, offered: Sequence[re.Pattern[str]]) -> str:
    """Return a page without its links and forms that lead to pages that are not offered; a link leaves its text."""

    def keep(match: re.Match[str]) -> str:
        path = re.split("[?#]", match["href"] if match["href"] is not None else match["action"])[0]
        if any(each.match(f"/page{path}") for each in offered) or path in _OWN_PATHS:
            return match[0]
        return "" if match["text"] is None or "button" in match["link"] else match["text"]

    return re.sub(_LEADING.format(re.escape(root)), keep, text, flags=re.DOTALL)


def login_response(request: Request, error: Exception) -> Response:
    """Return the login form with the reason, for a browser without a valid token."""
    message, login = (error.message, error.login) if isinstance(error, NotLoggedIn) else ("", "")
    if login:
        return render(request, "elsewhere", {"message": message, "login": login}, HTTPStatus.UNAUTHORIZED)
    name = "login" if getattr(request.app.state, "offered", None) is None else "portal_open"
    return render(request, name, {"message": message}, HTTPStatus.UNAUTHORIZED)


def refusal_response(request: Request, error: Exception) -> Response:
    """Return the response to a refused request: a page for a path under the page's root, else a problem document.

    A form with a wrong value is shown again, with the reason.
    """
    if not f"{request.url.path}/".startswith(f"{root(request)}/"):
        return problem_response(request, error)
    refusal = refusal_of(request, error)
    if isinstance(refusal, FormRefused):
        return render(request, refusal.template, refusal.values | {"refused": refusal.detail}, refusal.status)
    values: dict[str, Any] = {"status": refusal.status, "message": refusal.detail, "back": _page_before(request)}
    if (found := getattr(request.state, "viewer", None)) is not None:
        values["viewer"] = found
    response = render(request, "error", values, refusal.status)
    response.headers.update(refusal.headers)
    return response


def _page_before(request: Request) -> str | None:
    """Return the path of the page that the browser came from, or None if it is unknown or belongs to another site."""
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
    found.filters.update(
        cell=_cell,
        ago=_ago,
        when=_when,
        when_only=_time,
        colour=_colour,
        pretty=_pretty,
        compact=_compact,
        short=_short,
        seconds=seconds,
    )
    found.globals.update(
        replay_labels=REPLAY_LABELS, as_of_labels=AS_OF_LABELS, ids_labels=IDS_LABELS, redrive_labels=REDRIVE_LABELS
    )
    return found


def seconds(value: float | None) -> str:
    """Return a time in the unit that suits it; "" for none."""
    if value is None:
        return ""
    if value < 1:
        return f"{value * 1_000:,.0f} ms"
    return f"{value:,.1f} s" if value < 120 else f"{value / 60:,.0f} min"


def _cell(value: object) -> str:
    """Return a value as text for people; times in UTC to the second."""
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
    """Return how far a time is from now, by the clock of this host."""
    return distance(value, datetime.now(UTC))


def _when(value: datetime | None) -> Markup:
    """Return a time in UTC, and how long ago it was."""
    if value is None:
        return Markup("")
    return Markup('{} <span class="ago">{}</span>').format(_time(value), _ago(value))


def _time(value: datetime | None) -> Markup:
    """Return a time in UTC, marked as one, so that the script of the page can show it in the browser's zone."""
    if value is None:
        return Markup("")
    return Markup('<time datetime="{}">{}</time>').format(value.astimezone(UTC).isoformat(), _cell(value))


#: The colour of a badge by its state; a state that is not here has none.
_COLOURS: Final = {
    "good": "ok, delivered, matched, met, committed, reconciled, completed, done, valid, accepted, running, closed",
    "warn": "degraded, pending, scheduled, on hold, on_hold, paused, half-open, quota reached, retry_scheduled, "
    "low, changed",
    "bad": "disabled, failing, dead_lettered, dead-lettered, failed, incomplete, stalled, error, stopped, malformed, "
    "rejected, retrying, open",
}
_COLOUR_OF: Final = {state: colour for colour, states in _COLOURS.items() for state in states.split(", ")}


def _colour(state: str) -> str:
    return _COLOUR_OF.get(state, "")


def _short(value: float) -> str:
    """Return a number as the label of an axis."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"


def _pretty(text: str) -> str:
    """Return JSON indented, with numbers as written; any other text unchanged."""
    try:
        return msgspec.json.format(text, indent=2)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return text


def _compact(text: str) -> str:
    """Return JSON in one line, with numbers as written; any other text unchanged."""
    try:
        return msgspec.json.format(text, indent=0)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return text


#: The units of `distance` with their seconds, the largest first.
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def distance(at: datetime, now: datetime) -> str:
    """Return how far a time is from now, in whole units of the largest that fits: 47 hours ago is `1 d ago`."""
    seconds = int((now - at).total_seconds())
    for size, unit in _UNITS:
        if count := abs(seconds) // size:
            return f"{count:,} {unit} ago" if seconds > 0 else f"in {count:,} {unit}"
    return "now"
