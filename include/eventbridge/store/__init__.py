"""The object store, which holds immutable files of data and audit records; each file is either complete or absent."""
