"""Airflow's side of the product: the DAGs, their tasks, the pools and the doorbell; thin shells around `stages`."""
