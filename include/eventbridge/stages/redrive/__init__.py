"""Plans batches of dead letters that are delivered again."""
