"""Serves the HTTP API, for programs without Airflow and Spark that publish, read and operate, and the page."""
