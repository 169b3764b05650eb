"""The RocketMQ client that sources and targets share, with its settings and errors."""
