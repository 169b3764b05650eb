"""The target type `queue`: consumers receive its deliveries through the API."""
