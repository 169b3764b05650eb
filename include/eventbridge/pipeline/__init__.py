"""The stages of a batch, one folder each, as functions that take a runtime: ingest, route, settle, retry, commit."""
