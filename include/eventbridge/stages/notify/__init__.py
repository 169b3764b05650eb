"""Operational events, published to the bus `eventbridge`."""
