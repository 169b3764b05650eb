"""The target type `delta`, which writes each span of deliveries as one transaction of a Delta table."""
