"""Targets of the type `rocketmq`, which send deliveries as messages to a topic."""
