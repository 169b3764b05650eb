"""Finds, for the watcher, pools that an operator reopened while deliveries were on hold for them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from eventbridge.airflow.airflow_api import CONNECTION_ID
from eventbridge.airflow.pools import AirflowPools
from eventbridge.errors import InfrastructureError, UserError
from eventbridge.model.pending import POOL_CLOSED
from eventbridge.rules import RuleSet
from eventbridge.runtime.runtime import Runtime

log = logging.getLogger(__name__)

#: How long a result is valid: a query costs the ledger a millisecond and, while something is on hold, Airflow a
#: request and a line in its access log.
_VALID = timedelta(seconds=2)
#: How long Airflow is not called after it did not respond.
_SILENCE = timedelta(seconds=30)

#: How long Airflow may take to respond: the watcher is blocked meanwhile.
_RESPONSE_SECONDS = 1.0


@dataclass
class ReopenedPools:
    """Asks the ledger which deliveries wait for a closed pool and, only if there are any, Airflow for the pools'
    slots.
    """

    runtime: Runtime
    _until: datetime | None = None
    _found: bool = False
    _airflow: AirflowPools | None = None

    def has_any(self, rules: RuleSet, now: datetime) -> bool:
        """Return whether a pool has slots while its deliveries are still on hold with `pool closed`."""
        if self._until is None or now >= self._until:
            self._until = now + _VALID
            self._found = self._look(rules, now)
        return self._found

    def close(self) -> None:
        """Close the connection to Airflow; the next query opens another."""
        if self._airflow is not None:
            self._airflow.close()
            self._airflow = None

    def _look(self, rules: RuleSet, now: datetime) -> bool:
        held = {each.rule for each in self.runtime.ledger.waiting_targets() if each.held == POOL_CLOSED}
        wanted = {rules.rules[name].pool_name for name in held if name in rules.rules}
        if not wanted:
            return False
        try:
            if self._airflow is None:
                self._airflow = AirflowPools(self.runtime.connections(CONNECTION_ID), _RESPONSE_SECONDS)
            pools = self._airflow.pools()
        except (InfrastructureError, UserError) as error:
            log.warning(
                "cannot check whether a closed pool is open again; the next check is in %s: %s", _SILENCE, error
            )
            self._until = now + _SILENCE
            self.close()
            return False
        return any(name in pools and pools[name].slots > 0 for name in wanted)
