"""Plans the batches that take up pending deliveries and deferred matches when they are due."""
