"""Airflow's side of the product: the DAGs, their tasks, the pools and the watcher; thin shells around `stages`."""
