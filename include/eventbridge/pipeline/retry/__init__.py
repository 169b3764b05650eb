"""Plans batches of what is due: pending deliveries and deferred matches."""
