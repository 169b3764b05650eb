"""Opens topics of a Kafka cluster as a bus."""

from __future__ import annotations

from eventbridge.clients.kafka.settings import client_settings
from eventbridge.errors import PackageMissing
from eventbridge.sources.kafka.fields import KafkaFields
from eventbridge.sources.opening import Opening

try:
    from eventbridge.sources.kafka.log import KafkaLog
except ModuleNotFoundError as error:
    raise PackageMissing.of(error) or error from None


def open_kafka(opening: Opening[KafkaFields]) -> KafkaLog:
    """Open the source's topics, without a request to the brokers yet. Raises ConnectionUnusable."""
    source = opening.source
    settings = client_settings(opening.connections(source.connection))
    return KafkaLog(settings, source.topics, clock=opening.clock)
