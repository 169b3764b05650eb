"""Redacts the URL of a ledger for messages."""

from __future__ import annotations

from sqlalchemy import URL

#: Parameters that locate a server; others may contain a password.
_SHOWN = ("host", "port", "mode", "uri")


def redact_url(url: URL) -> str:
    """Return a URL without its password, and without parameters that may contain one."""
    shown = {name: value for name, value in url.query.items() if name in _SHOWN}
    # text before an @ in a host is the rest of a password whose own @ was not escaped
    host = None if url.host is None else url.host.rpartition("@")[2]
    return url.set(host=host, query=shown).render_as_string(hide_password=True)
