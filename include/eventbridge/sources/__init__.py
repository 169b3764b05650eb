"""Where events come from: logs that are read by range, queues that are acknowledged."""
