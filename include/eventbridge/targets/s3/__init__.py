"""Targets of the type `s3`: deliveries are objects of a bucket, one for each span of them."""
