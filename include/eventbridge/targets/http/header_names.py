"""Decides which headers events and rule files may set; it imports little, because all rule readers import it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from eventbridge.rules.fields import Fields, is_secret_name

#: RFC 9110, 5.6.2: a token.
HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
#: RFC 9110, 5.5, without the obsolete bytes: printable ASCII, with spaces and tabs in between.
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")

#: Headers that an event cannot set because the target, HTTP clients or proxies set them: framing, credentials,
#: hop-by-hop.
_OWN = frozenset(
    {
        "accept-encoding",  # a compressed response cannot be masked, nor read as the results of a batch
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)
_OWN_PREFIXES = ("proxy-", "svix-", "webhook-")

#: Headers that a rule file cannot set for a further reason: proxies set them and receivers trust them, or each
#: delivery has its own value.
_OF_PROXIES = re.compile(
    r"forwarded|via|x-(?:real|client|cluster-client)-ip|(?:cf-connecting|true-client)-ip|x-forwarded-.*"
    r"|x-original-.*|x-rewrite-url|x-http-method(?:-override)?|x-method-override"
)
_OF_DELIVERIES = re.compile(r"ce-.*|traceparent|tracestate|eventbridge-.*")
_REMEDIES: Final = {
    "content-type": "Remove it; the transform decides it, a template by its content_type",
    "idempotency-key": "Remove it: a receiver would drop every delivery but the first. webhook-id is the key",
}

_MAX_HEADERS = 20
_MAX_NAME, _MAX_VALUE, _MAX_TOTAL = 100, 1_000, 4_000
_CREDENTIAL = re.compile(r"(?:basic|bearer|digest|apikey|token)\s+\S|whsec_|whsk_", re.I)
_IN_A_CONNECTION = "Put it into a connection, as its extra token, or api_key with api_key_header, and name that: "
_IN_A_CONNECTION += "connection: <id>"


def is_reserved(name: str) -> bool:
    """Return whether an event cannot set a header; its name may be in any case.

    Many receivers read an underscore in a name as a hyphen.
    """
    lower = name.lower().replace("_", "-")
    return lower in _OWN or lower.startswith(_OWN_PREFIXES)


def read_headers(fields: Fields) -> Mapping[str, str]:
    """Return the headers that the `headers` field of a target adds to each request."""
    if fields.get("headers") is None:
        return {}
    given = fields.nested("headers", "headers")
    fields.refuse_empty("headers", "Write headers: {name: value}, or remove it")
    found: dict[str, str] = {}
    for name in given.given_names():
        if (problem := _name_problem(name, found)) is not None:
            given.refuse([name], *problem)
        elif (value := given.text(name)) and (problem := _value_problem(value)) is not None:
            given.add_to(name, problem[0].format(name), problem[1])
        elif value:
            found[name] = value
    total = sum(len(name) + len(value) for name, value in found.items())
    if len(found) > _MAX_HEADERS:
        fields.add_to("headers", f"{len(found)} headers are too many", f"Write at most {_MAX_HEADERS}")
    elif total > _MAX_TOTAL:
        message = f"the headers have {total:,} characters"
        fields.add_to("headers", message, f"Write names and values of at most {_MAX_TOTAL:,} characters in total")
    return found


def _name_problem(name: str, earlier: Mapping[str, str]) -> tuple[str, str] | None:
    """Return why a rule file cannot set a header, with `{}` for its name, and the remedy; None if it can."""
    lower = name.lower().replace("_", "-")
    if not HEADER_NAME.fullmatch(name) or len(name) > _MAX_NAME:
        remedy = f"Use 1 to {_MAX_NAME} letters, digits, hyphens and underscores"
        return "{!r} is not the name of a header", remedy
    if lower in (each.lower().replace("_", "-") for each in earlier):
        return "the header {} is given twice; upper and lower case are the same", "Remove one"
    if is_secret_name(lower) or lower in ("cookie", "set-cookie", "proxy-authorization"):
        return "the header {} looks like a secret, and rule files must not contain secrets", _IN_A_CONNECTION
    if is_reserved(lower) or _OF_DELIVERIES.fullmatch(lower) or lower in _REMEDIES:
        return "the header {} is set by EventBridge, not by a rule file", _REMEDIES.get(lower, "Remove it")
    if _OF_PROXIES.fullmatch(lower):
        return "the header {} is set by proxies, and receivers trust it", "Remove it"
    return None


def _value_problem(value: str) -> tuple[str, str] | None:
    if "${" in value:
        return "the header {} is sent literally: ${{...}} is not replaced", "Write the value itself"
    if _CREDENTIAL.match(value):
        return "the value of the header {} looks like a secret, and rule files must not contain secrets", (
            _IN_A_CONNECTION
        )
    if len(value) > _MAX_VALUE:
        return f"the value of the header {{}} has {len(value):,} characters", f"Write at most {_MAX_VALUE:,}"
    if not _VALUE.fullmatch(value):
        message = "the value of the header {} must be printable ASCII that neither begins nor ends with a space"
        return message, "Remove line breaks, control characters and other characters"
    return None
