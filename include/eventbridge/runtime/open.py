"""Opens the runtime of a process: its ledger, its store, and the functions that open buses and targets.

Commands, Airflow's tasks and the API import this module. Stages only receive the runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from eventbridge.config.connection import Connection
from eventbridge.config.settings import Settings
from eventbridge.errors import StoreError
from eventbridge.files import close_to_others, make_private_folder
from eventbridge.ledger import Ledger
from eventbridge.rules import Bus, RuleSet
from eventbridge.rules import Target as TargetRule
from eventbridge.runtime.bucket_rules import load_rule_files
from eventbridge.runtime.runtime import Openers, Runtime
from eventbridge.sources.open import open_log, open_publisher, open_queue
from eventbridge.sources.protocol import LogSource, Publisher
from eventbridge.store.open import open_store
from eventbridge.telemetry.protocol import NO_TELEMETRY, Telemetry

if TYPE_CHECKING:
    from eventbridge.targets.protocol import Target


def open_runtime(
    settings: Settings,
    connections: Callable[[str], Connection],
    clock: Callable[[], datetime] | None = None,
    telemetry: Telemetry = NO_TELEMETRY,
) -> Runtime:
    """Open the ledger and the store that the settings name. Raises InfrastructureError if one cannot be reached.

    By default, `clock` is the ledger's clock, which all hosts share, because other hosts compare the times that a push
    computes.
    """
    _make_home(settings.home)
    ledger = Ledger.open(settings.ledger_url, clock=clock)
    store = open_store(settings.store_uri, connections)
    return Runtime(settings, ledger, store, connections, clock or ledger.now, OPENERS, telemetry)


def _make_home(home: Path) -> None:
    try:
        make_private_folder(home)
        close_to_others(home)
    except OSError as error:
        raise StoreError(
            f"Cannot create the folder {home}: {error.strerror}. Set EVENTBRIDGE_HOME to another folder."
        ) from None


def _rule_files(runtime: Runtime) -> RuleSet:
    folder, cache = runtime.settings.rules_folder, runtime.settings.rule_cache
    return load_rule_files(folder, runtime.connections, cache=cache)


def _source(runtime: Runtime, bus: Bus) -> LogSource:
    settings, connections, clock = runtime.settings, runtime.connections, runtime.clock
    if not bus.source.is_queue:
        return open_log(bus, settings, connections, clock)
    from eventbridge.runtime.inbox import Inbox  # imported here, because few buses are queues

    sources = {topic: open_queue(bus, topic, settings, connections, clock) for topic in bus.source.topics}
    return Inbox(bus.name, sources, runtime.ledger, runtime.store)


def _publisher(runtime: Runtime, bus: Bus) -> Publisher:
    return open_publisher(bus, runtime.settings, runtime.connections, runtime.clock)


def _target(runtime: Runtime, rule: str, target: TargetRule, connections: Callable[[str], Connection]) -> Target:
    # Imported here, because importing the clients takes 0.3 s of CPU time, and only a push needs them.
    from eventbridge.targets.open import open_target

    settings = runtime.settings
    return open_target(rule, target, connections, runtime.clock, settings.allow_addresses, settings.target_locations)


#: The openers that `open_runtime` passes to every runtime.
OPENERS = Openers(_rule_files, _source, _publisher, _target)
