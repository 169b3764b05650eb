"""Messages about an SQL condition that DuckDB rejects; they never quote the content of events."""

from __future__ import annotations

from collections.abc import Callable

from eventbridge.errors import UserError
from eventbridge.store.sql_sandbox import SqlRefused


def refuse_without_data(ask: Callable[[], object], condition: str, of: str, remedy: str) -> None:
    """Raise UserError with DuckDB's message for a condition that it rejects without data; `ask` queries no row."""
    try:
        ask()
    except SqlRefused as error:
        raise UserError(f"{condition!r} is not a condition in SQL on {of}: {error}. {remedy}") from None


def failed_on_data(condition: str, one: str) -> str:
    """Return the message for a valid condition that fails on the content of an event or a dead letter."""
    return (
        f"{condition!r} fails on {one}: it casts a value that cannot be cast, or a function refuses a value. "
        "Write TRY_CAST(... AS ...), or TRY(...) around the function."
    )
