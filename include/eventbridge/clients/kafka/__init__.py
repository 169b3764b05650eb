"""Client settings and errors that Kafka sources and Kafka targets share."""
