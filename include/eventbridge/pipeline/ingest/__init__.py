"""From the bus into the store: plan a batch, land its events."""
