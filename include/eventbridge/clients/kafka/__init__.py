"""What Kafka sources and Kafka targets share: the settings of a client, and its errors."""
