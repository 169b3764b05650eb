"""Guards against a lost ledger: an empty or restored one must never look like a first start."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import PurePosixPath

from eventbridge.errors import LedgerLostError, NotFoundError, StoreError, StoreFileMissing
from eventbridge.event.ids import new_batch_id
from eventbridge.runtime.runtime import Runtime
from eventbridge.store import layout

#: A ledger that planned a batch this recently was not restored just now, so manifests need not be listed.
_TRUSTED_SECONDS = 600.0


def claim_runner(runtime: Runtime, runner: str) -> None:
    """Record in the store which ledger holds a runner's state, or raise LedgerLostError if it is another one.

    It uses a conditional create: if two ledgers start with one store, one wins.
    """
    path = layout.runner(runner)
    content = {"runner": runner, "ledger": runtime.ledger.ledger_id, "since": runtime.ledger.now().isoformat()}
    # Read offsets before the store: a process claims the runner there before it registers offsets. In the other order,
    # a process that starts the runner at the same moment looks like a store that was lost.
    offsets = runtime.ledger.committed_offsets(runner)
    try:
        written = runtime.store.get(path)
    except StoreFileMissing:
        if offsets:
            raise LedgerLostError(
                f"The ledger has offsets of runner {runner!r}, but {runtime.store.uri} has no record of this runner: "
                "the store was deleted or replaced, and with it the archive and the payloads of what is pending. "
                "Restore it, or point EVENTBRIDGE_STORE_URI at the store that belongs to this ledger. "
                "To start over on purpose, name an empty ledger as well by EVENTBRIDGE_LEDGER_URL."
            ) from None
        if runtime.store.create(path, json.dumps(content).encode()):
            return
        written = runtime.store.get(path)
    try:
        owner = json.loads(written)["ledger"]
    except (ValueError, KeyError, TypeError):
        raise StoreError(
            f"{path} in {runtime.store.uri} does not say which ledger it belongs to. Restore it."
        ) from None
    if owner != runtime.ledger.ledger_id:
        raise LedgerLostError(
            f"The state of runner {runner!r} is in the ledger {owner}, and this ledger is {runtime.ledger.ledger_id}. "
            + _remedy(runtime)
        )


def registered_at(runtime: Runtime, runner: str) -> datetime | None:
    """Return since when the ledger holds a runner's state, by the ledger's clock; None if it was not claimed."""
    try:
        return datetime.fromisoformat(json.loads(runtime.store.get(layout.runner(runner)))["since"])
    except (StoreFileMissing, ValueError, KeyError, TypeError):
        return None


def refuse_lost_ledger(runtime: Runtime, *, always: bool = False) -> None:
    """Raise LedgerLostError if the newest manifest in the store is of a batch that the ledger does not know.

    Checks only if the ledger planned nothing in the last 10 minutes, or `always`, because a listing is not free.
    """
    latest = runtime.ledger.latest_batch()
    now = runtime.ledger.now()
    if not always and latest is not None and (now - latest.planned_at).total_seconds() < _TRUSTED_SECONDS:
        return
    found = runtime.store.list("manifests/", _name_before(latest.planned_at) if latest is not None else "")
    if not found:
        return
    newest = PurePosixPath(found[-1]).stem
    try:
        runtime.ledger.batch(newest)
    except NotFoundError:
        raise LedgerLostError(
            f"The store {runtime.store.uri} holds the manifest of batch {newest}, and this ledger does not know it: "
            f"the ledger is older than the store. {_remedy(runtime)}"
        ) from None


def _name_before(planned_at: datetime) -> str:
    """Return a name that sorts before the manifests of the batches planned at that time, so that few are listed.

    Not the name of the newest known batch: batches planned at one moment are in no order.
    """
    since = planned_at - timedelta(seconds=_TRUSTED_SECONDS)
    return layout.manifest(since, new_batch_id(since))


def _remedy(runtime: Runtime) -> str:
    return (
        "Point EVENTBRIDGE_LEDGER_URL at the ledger that belongs to this store, or restore its latest copy. "
        "To start over on purpose, which delivers again what start_at covers, name an empty store by "
        "EVENTBRIDGE_STORE_URI."
    )
