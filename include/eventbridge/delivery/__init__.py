"""Sends the deliveries of a chunk or an open batch, target by target, and records every response."""
