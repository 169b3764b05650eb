"""Runs EventBridge in Airflow: the DAGs, their tasks, the pools and the watcher.

They are a thin layer over other packages, such as `pipeline`.
"""
