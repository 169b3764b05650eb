"""Targets of the type `s3`: each span of deliveries becomes one object of a bucket."""
