"""The object store: immutable files of data and audit records, each whole or not there at all."""
