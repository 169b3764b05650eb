"""The runner in batch mode of bench_streaming, as a separate process that SIGINT ends after its current batch."""

from __future__ import annotations

import os
import signal
from contextlib import closing

from benchmarks.bench_streaming import deliver_in_stages

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.runtime.open import open_runtime
from eventbridge.runtime.stop import Stop


def main() -> None:
    """Deliver until SIGINT."""
    stop = Stop()
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    with closing(open_runtime(Settings.from_mapping(os.environ), connections_from_environment(os.environ))) as runtime:
        deliver_in_stages(runtime, stop)


if __name__ == "__main__":
    main()
