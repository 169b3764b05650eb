"""The source of the type `kafka`: topics of Apache Kafka, read by ranges of offsets."""
