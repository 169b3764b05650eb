"""Sources of the type `kafka`, which read topics of Apache Kafka by ranges of offsets."""
