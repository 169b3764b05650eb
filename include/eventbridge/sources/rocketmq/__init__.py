"""The source of the type `rocketmq`: topics of Apache RocketMQ, read by ranges of offsets or as queues (pop mode)."""
