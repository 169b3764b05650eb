"""Routes a batch slice by slice, and cuts its chunks."""
