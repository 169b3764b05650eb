"""The stages of a batch, a folder each, as functions of a runtime: ingest, route, settle, retry, commit."""
