"""`python -m demo.settled`: waits until each published event is delivered, dead-lettered or on hold."""

from __future__ import annotations

import os
import sys
import time
from contextlib import closing

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.errors import EventBridgeError
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.runtime import Runtime
from eventbridge.views.status import status

_PATIENCE_SECONDS = 120.0
_POLL_SECONDS = 0.2


def unsettled(runtime: Runtime) -> list[str]:
    """Return what will still progress without a person: waiting events, open batches, deliveries to be retried."""
    found = status(runtime, batches=0)
    lags = [
        f"{partition.runner}: lag {partition.lag} of {partition.partition}"
        for partition in found.partitions
        if partition.lag
    ]
    new = [f"{each.runner} has never run" for each in found.unregistered]
    batches = [batch for batch in runtime.ledger.batches.find(limit=None) if batch.state != "committed"]
    opened = [f"{batch.kind} batch {batch.batch_id} of {batch.runner}: {batch.state}" for batch in batches]
    return [
        *lags,
        *new,
        *opened,
        *(f"pending: {row}" for row in runtime.ledger.pending.counts() if row.state == "scheduled"),
    ]


def main() -> int:
    """Return the exit code: 0 when everything is settled, 1 after two minutes, or if there is no installation."""
    until = time.monotonic() + _PATIENCE_SECONDS
    try:
        with closing(
            open_runtime(Settings.from_mapping(os.environ), connections_from_environment(os.environ))
        ) as runtime:
            while waiting := unsettled(runtime):
                if time.monotonic() > until:
                    print("\n".join(["Not settled yet:", *waiting]), file=sys.stderr)  # noqa: T201
                    return 1
                time.sleep(_POLL_SECONDS)
            held = sum(row.count for row in runtime.ledger.pending.counts() if row.state == "on_hold")
    except EventBridgeError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    print(f"Settled; {held or 'no'} {'delivery is' if held == 1 else 'deliveries are'} on hold for a person.")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
