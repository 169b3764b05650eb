"""Sources of the type `rocketmq`, which read topics of Apache RocketMQ by ranges of offsets or as queues (pop mode)."""
