"""Routes the events of a batch slice by slice, and divides the deliveries into chunks."""
