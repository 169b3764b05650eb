"""Asks Airflow's REST API which asset events of a watcher it has recorded, and for which of them it starts no run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from eventbridge.airflow.airflow_api import AirflowAssetEvents
from eventbridge.airflow.asset_event_payload import partition_number, watcher_number
from eventbridge.model.partition import Partition, WatcherPosition

#: Clocks of the ledger and of Airflow differ by less. Asset events that Airflow does not confirm in 5 minutes fail.
MARGIN = timedelta(minutes=10)


def recovered_position(
    airflow: AirflowAssetEvents, position: WatcherPosition, partitions: Sequence[Partition]
) -> WatcherPosition:
    """Return a position after those of the claimed asset events that Airflow has recorded. Raises AirflowError.

    Airflow records the asset events of a watcher in their order, so all before a recorded one are recorded too.
    """
    assert position.claimed_at is not None
    offsets, sequence = dict(position.offsets), position.sequence
    numbers = {partition_number(partition): partition for partition in [*partitions, *offsets]}
    for event in airflow.between(position.claimed_at - MARGIN, position.claimed_at + MARGIN):
        recorded = _recorded_by(event, position.asset, position.bus, position.name)
        if recorded is None or recorded["sequence"] <= position.sequence:
            continue
        sequence = max(sequence, recorded["sequence"])
        for number, offset in recorded["next"]:
            partition = numbers.get(number)
            if partition is not None:
                offsets[partition] = max(offset, offsets.get(partition, offset))
    return replace(position, offsets=offsets, sequence=sequence, claimed=sequence)


def is_passed_over(airflow: AirflowAssetEvents, asset: str, bus: str, name: str) -> bool | None:
    """Return whether the scheduler will run no DAG, or not every DAG, for a watcher's last asset event.

    Returns None if that is not known yet. Raises AirflowError.

    A DAG run takes the asset events up to the first one that the scheduler had not handled, so later ones of the same
    moment get no run until there is another asset event.
    """
    for event in airflow.newest():
        if _recorded_by(event, asset, bus, name) is not None:
            break
    else:
        return False
    # Read before the runs: a run that the scheduler starts in between is then found, and not started again.
    queued = airflow.queued_dags(event["asset_id"])
    waiting = airflow.waiting_dags(event["asset_id"])
    again = next((each for each in airflow.newest() if each["id"] == event["id"]), event)
    missing = waiting - {run["dag_id"] for run in again["created_dagruns"]}
    if not missing:
        return False
    return None if missing & queued else True


def _recorded_by(event: Mapping[str, Any], asset: str, bus: str, name: str) -> dict[str, Any] | None:
    """Return the position in an asset event if a watcher made it, else None."""
    payload = (event.get("extra") or {}).get("payload")
    position = payload.get("position") if event.get("name") == asset and isinstance(payload, dict) else None
    is_ours = isinstance(position, dict) and position.get("watcher") == watcher_number(bus, name)
    return position if is_ours else None
