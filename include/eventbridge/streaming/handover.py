"""Prepares a standby for a handover, and lets it wait until the previous streaming task has closed its last batch.

The standby delivers events during that time.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing, suppress
from itertools import islice
from typing import Final

from eventbridge.errors import EventBridgeError, InfrastructureError
from eventbridge.model.partition import FreshEvent, Partition
from eventbridge.pipeline.route.stage import job_of
from eventbridge.routing.in_memory import route_in_memory
from eventbridge.routing.program import route_program
from eventbridge.rules import RuleSet
from eventbridge.runtime.runtime import Runtime
from eventbridge.runtime.stop import Stop
from eventbridge.streaming.bus import StreamingBus
from eventbridge.streaming.lease import Handoff, is_gone

log = logging.getLogger(__name__)

#: The maximum number of targets to open in advance. Other targets are opened at their first delivery.
_TARGETS_AHEAD: Final = 100
#: The maximum time that the previous streaming task may take to close its batch. It waits for responses until their
#: timeouts, at most 30 s, and then reconciles the batch.
_CLOSE_SECONDS = 75.0
_POLL_SECONDS = 0.05

_CANARY: Final = FreshEvent(
    Partition("canary", "", 0),
    0,
    0,
    "canary",
    "/canary",
    b'{"specversion": "1.0", "id": "canary", "source": "/canary", "type": "canary"}',
)


def make_ready(runtime: Runtime, runner: str, bus: StreamingBus) -> None:
    """Load what the first batch needs while another streaming task still delivers.

    This is the rules, the code, the bus and the connections of the targets. An error is only logged, because the first
    batch raises it again.
    """
    try:
        batch = runtime.ledger.batches.unfinished(runner)
        if batch is None:
            return
        rules, job = runtime.rules_of(batch), job_of(runtime, batch)
        program = route_program(batch.rule_set, rules, batch.bus)
        route_in_memory(program, [_CANARY], runtime.clock(), job.event_max_size, job.later)
        bus.open(rules.buses[batch.bus])
        _open_targets(runtime, rules)
    except EventBridgeError as error:
        log.warning("runner %s: the standby is only partly ready: %s", runner, error)


def _open_targets(runtime: Runtime, rules: RuleSet) -> None:
    targets = ((name, target) for name, rule in rules.rules.items() for target in rule.destinations.values())
    for name, target in islice(targets, _TARGETS_AHEAD):
        with suppress(EventBridgeError), closing(runtime.open_target(name, target)):
            pass


def wait_until_closed(runtime: Runtime, left: Handoff, stop: Stop) -> None:
    """Wait until the previous streaming task has committed its last batch, has died, or has taken too long.

    Raises InfrastructureError if `stop` is over first. The batch then still belongs to the previous streaming task,
    which is waiting for responses.
    """
    end = time.monotonic() + _CLOSE_SECONDS
    while runtime.ledger.batches.get(left.batch_id).state != "committed":
        now = time.monotonic()
        if is_gone(left.holder) or now >= end:
            log.warning(
                "finishing batch %s in this process, because the streaming task that handed it over did not finish it",
                left.batch_id,
            )
            return
        if stop.is_over():
            raise InfrastructureError(f"stopped before the former streaming task had closed batch {left.batch_id}")
        time.sleep(_POLL_SECONDS)
