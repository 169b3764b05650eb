"""Runs the stages of a batch, as functions that take a runtime.

The folders: `ingest` has the stages listen and buffer, `route` the stage route, `settle` the stages write_dead_letters
and schedule_retries, `commit` the stage commit, and `retry` the planning of retry batches. The stage push is in
`eventbridge.delivery`.
"""
