"""EventBridge for Airflow and Spark: rules in files, events from a bus to targets, every event accounted for."""

__version__ = "0.2.0"
