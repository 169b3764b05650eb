"""What the DAGs' tasks and `eventbridge deliver` call: each stage of a batch as a function of a runtime."""
