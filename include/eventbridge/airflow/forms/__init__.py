"""The forms of the DAGs: the parameters in Airflow's trigger dialogue."""
