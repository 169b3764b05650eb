"""The source type `embedded`: a durable log, in one SQLite file per bus or in the ledger's PostgreSQL database."""
