"""Plans a batch, reads its events from the bus, and stores them in the archive."""
