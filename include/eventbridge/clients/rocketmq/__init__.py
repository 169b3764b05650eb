"""What RocketMQ sources and RocketMQ targets share: the client, its settings, and its errors."""
