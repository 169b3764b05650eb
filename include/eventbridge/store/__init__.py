"""The object store: immutable files of data and audit records, each complete or absent."""
