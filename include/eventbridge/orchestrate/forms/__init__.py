"""The forms of the DAGs: the parameters that the trigger dialogue of Airflow asks for."""
