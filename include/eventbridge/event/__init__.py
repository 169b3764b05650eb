"""A CloudEvent, the strict JSON document that it is, and the ids that are made of it."""
