"""The HTTP API: FastAPI in front of what the stages do, for programs that know nothing of Airflow and Spark."""
