"""The source type `embedded`: a durable log for one machine, one SQLite file per bus."""
