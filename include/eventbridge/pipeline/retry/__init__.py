"""Plans batches of due pending deliveries and deferred matches."""
