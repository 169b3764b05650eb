"""The source of the type `sqs`: queues of Amazon SQS, or of a server with the same protocol."""
