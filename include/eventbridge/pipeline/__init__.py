"""Runs the stages of a batch, as functions that take a runtime.

Each folder is a stage: ingest, route, settle, retry, commit.
"""
