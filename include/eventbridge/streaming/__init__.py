"""Runs the streaming task, which delivers events as they arrive, in batches that the pipeline reconciles."""
