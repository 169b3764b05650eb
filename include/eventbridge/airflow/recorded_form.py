"""Records in the ledger what a person requests by the form of a DAG, as the API and the command line record their
calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from eventbridge.errors import EventBridgeError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from eventbridge.runtime.runtime import Runtime


@contextmanager
def recorded_form(runtime: Runtime, context: Context, form: Mapping[str, Any]) -> Iterator[str]:
    """Record a form before the block runs, and its exit code after; yields the name of the user.

    Raises LedgerError before the block. A dry run changes nothing and is not recorded.
    """
    from eventbridge.control.actions import note_action

    by = user_of(context)
    if form.get("dry_run"):
        yield by
        return
    asked = {name: value for name, value in form.items() if value not in (None, "", [], False)}
    number = note_action(runtime, f"Airflow, {by}", f"DAG {context['dag'].dag_id}", asked)
    code = 1
    try:
        yield by
        code = 0
    except EventBridgeError as error:
        code = error.exit_code
        raise
    finally:
        runtime.ledger.record_action_status(number, code)


def user_of(context: Context) -> str:
    """Return the name of the user who triggered a run, or the run id if Airflow does not know it."""
    return getattr(context["dag_run"], "triggering_user_name", None) or context["run_id"]
