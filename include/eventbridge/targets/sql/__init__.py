"""The target type `sql`, which writes each delivery as a row of a PostgreSQL or SQLite table."""
