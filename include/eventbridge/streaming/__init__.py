"""The streaming task: it delivers events as they come, in batches that the pipeline reconciles."""
