"""Plans a batch, and lands its events from the bus in the store."""
