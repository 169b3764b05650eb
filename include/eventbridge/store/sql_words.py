"""What is said of a condition in SQL that DuckDB refuses: never what the events hold that it was asked about."""

from __future__ import annotations

from collections.abc import Callable

from eventbridge.errors import UserError
from eventbridge.store.sql_sandbox import SqlRefused


def refuse_without_data(ask: Callable[[], object], condition: str, of: str, remedy: str) -> None:
    """Raise UserError with DuckDB's words for a condition that it refuses with no data; `ask` asks about no row."""
    try:
        ask()
    except SqlRefused as error:
        raise UserError(f"{condition!r} is not a condition in SQL on {of}: {error}. {remedy}") from None


def failed_on_data(condition: str, one: str) -> str:
    """Return what is said of a condition that is one, and fails on what an event or a dead letter holds."""
    return (
        f"{condition!r} fails on {one}: it casts a value that cannot be cast, or a function refuses a value. "
        "Write TRY_CAST(... AS ...), or TRY(...) around the function."
    )
