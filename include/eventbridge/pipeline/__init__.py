"""Runs the stages of a batch, as functions that take a runtime.

The folders: `ingest` has the stages listen and buffer, `route` has the route stage, `settle` has the stages
write_dead_letters and schedule_retries, `commit` has the commit stage, and `retry` has the planning of retry batches.
The push stage is in `eventbridge.delivery`.
"""
