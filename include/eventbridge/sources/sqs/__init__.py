"""Sources of the type `sqs`, which read queues of Amazon SQS or of a server with the same protocol."""
