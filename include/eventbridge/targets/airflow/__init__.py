"""The target type `airflow`, which starts DAG runs or creates asset events in an Airflow."""
