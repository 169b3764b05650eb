"""Dead letter files: select, read, copy to a queue."""
