"""A DAG of a user, for tests of the listener: it changes an asset, then a task fails at both of its tries."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import Asset, dag, task

ORDERS = Asset("orders_table")


@dag(schedule=None, tags=["team:sales"], default_args={"owner": "sales"})
def load_orders() -> None:
    """Load some rows, and find none."""

    @task(outlets=[ORDERS])
    def load(*, outlet_events: object) -> None:
        outlet_events[ORDERS].extra = {"rows": 5000}  # type: ignore[index]

    @task(retries=1, retry_delay=timedelta(0))
    def check() -> None:
        raise ValueError("there are no rows")

    load() >> check()


load_orders()
