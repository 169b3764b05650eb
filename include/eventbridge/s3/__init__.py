"""What stores and targets in buckets have in common: the way to S3, uploads, and what its errors are."""
