"""Has a batch routed, slice by slice, and cuts its chunks."""
