"""The client, its settings and its errors, which RocketMQ sources and RocketMQ targets share."""
