"""Applies the migrations in the transaction of the connection that it is given; Alembic runs this file."""

from __future__ import annotations

from alembic import context

from eventbridge.ledger.definitions import metadata

attributes = context.config.attributes
context.configure(
    connection=attributes["connection"], target_metadata=metadata, version_table=attributes["version_table"]
)
context.run_migrations()
