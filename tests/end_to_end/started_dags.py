"""DAGs of a user that rules start: one fails for some events, the other does nothing."""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, dag, get_current_context, task

with DAG("report_orders", schedule=None):
    EmptyOperator(task_id="nothing")


@dag(schedule=None)
def review_order() -> None:
    """Accept the order 0, and fail for each other one."""

    @task
    def review() -> None:
        number = get_current_context()["dag_run"].conf["n"]
        if number:
            raise ValueError(f"order {number} is refused")

    review()


review_order()
