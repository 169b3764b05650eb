"""Opens topics of a RocketMQ cluster as a bus."""

from __future__ import annotations

from eventbridge.clients.rocketmq.settings import client_settings
from eventbridge.sources.opening import Opening
from eventbridge.sources.rocketmq.fields import RocketmqFields
from eventbridge.sources.rocketmq.log import RocketmqLog
from eventbridge.sources.rocketmq.queue import PopMode, RocketmqQueue


def open_rocketmq(opening: Opening[RocketmqFields]) -> RocketmqLog | RocketmqQueue:
    """Open the source's topics, without a request to the servers yet. Raises ConnectionUnusable."""
    source = opening.source
    settings = client_settings(opening.connections(source.connection))
    if not source.is_queue:
        return RocketmqLog(settings, source.topics)
    mode = PopMode(source.group or opening.bus, source.visibility_timeout, source.start_at != "earliest")
    return RocketmqQueue(settings, source.topics, mode)
