"""The HTTP API, over which programs without Airflow and Spark publish, read and operate, and the page for operators."""
