"""Plans batches of what is due: parked deliveries and deferred references."""
