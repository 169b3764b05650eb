"""Runs the streaming task, which delivers events as they arrive. The stages of the pipeline reconcile its batches."""
