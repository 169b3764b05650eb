"""Targets of the type `rocketmq`: deliveries are messages of a topic."""
