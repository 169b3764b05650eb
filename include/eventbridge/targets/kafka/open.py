"""Opens a Kafka target."""

from __future__ import annotations

from eventbridge.clients.kafka.settings import client_settings
from eventbridge.errors import PackageMissing
from eventbridge.targets.kafka.fields import KafkaFields
from eventbridge.targets.opening import Opening

try:
    from eventbridge.targets.kafka.target import KafkaTarget
except ModuleNotFoundError as error:
    raise PackageMissing.of(error) or error from None


def open_kafka(opening: Opening[KafkaFields]) -> KafkaTarget:
    """Return a Kafka target; raises ConnectionUnusable for its connection, which is read now."""
    target = opening.target
    settings = client_settings(opening.connections(target.connection))
    settings["message.timeout.ms"] = str(round(target.timeout_seconds * 1_000))
    return KafkaTarget(settings, target.topic, max_in_flight=target.max_in_flight, clock=opening.clock)
