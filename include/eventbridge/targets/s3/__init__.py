"""Targets of the type `s3`, which write each span of deliveries as one object to a bucket."""
