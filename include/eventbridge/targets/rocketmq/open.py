"""Opens a RocketMQ target."""

from __future__ import annotations

from dataclasses import replace

from eventbridge.clients.rocketmq.settings import client_settings
from eventbridge.targets.opening import Opening
from eventbridge.targets.rocketmq.fields import RocketmqFields
from eventbridge.targets.rocketmq.target import RocketmqTarget


def open_rocketmq(opening: Opening[RocketmqFields]) -> RocketmqTarget:
    """Return a RocketMQ target; raises ConnectionUnusable for its connection, which is read now."""
    target = opening.target
    settings = replace(client_settings(opening.connections(target.connection)), timeout_seconds=target.timeout_seconds)
    return RocketmqTarget(settings, (target.topic, target.tag), max_in_flight=target.max_in_flight, clock=opening.clock)
