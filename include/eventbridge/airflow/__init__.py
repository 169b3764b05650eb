"""Airflow's side of the product: the DAGs, their tasks, the pools and the watcher. Each is a thin shell around
the packages below it, such as `pipeline`.
"""
