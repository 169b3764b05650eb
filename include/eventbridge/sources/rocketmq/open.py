"""Opens topics of a RocketMQ cluster as a bus."""

from __future__ import annotations

from eventbridge.rocketmq.settings import client_settings
from eventbridge.sources.opening import Opening
from eventbridge.sources.rocketmq.fields import RocketmqFields
from eventbridge.sources.rocketmq.log import RocketmqLog


def open_rocketmq(opening: Opening[RocketmqFields]) -> RocketmqLog:
    """Open the source's topics; nothing is asked of the servers yet. Raises ConnectionUnusable."""
    source = opening.source
    return RocketmqLog(client_settings(opening.connections(source.connection)), source.topics)
