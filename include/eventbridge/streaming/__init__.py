"""The streaming task: it delivers events as they arrive, in batches that the pipeline reconciles."""
