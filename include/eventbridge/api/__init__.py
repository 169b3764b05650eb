"""The HTTP API: publish, read and operate over HTTP, for programs without Airflow and Spark; and the page."""
