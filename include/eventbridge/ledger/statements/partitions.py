"""The condition for rows of one partition, for every table with rows by partition."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Table, and_, bindparam


def of_partition(table: Table) -> ColumnElement[bool]:
    """Return the condition for the rows of the partition that `of_topic`, `of_broker` and `of_partition` name."""
    return and_(
        table.c.topic_name == bindparam("of_topic"),
        table.c.broker_name == bindparam("of_broker"),
        table.c.partition_id == bindparam("of_partition"),
    )
