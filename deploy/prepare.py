"""Prepares the services before they start: databases and their tables, bucket, topics, Airflow's password file.

It may run again at any time, and must run after an upgrade: it keeps what exists and migrates tables.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import boto3
import psycopg
from botocore.config import Config
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg import sql


def main() -> None:
    """Create everything, in the order of dependencies."""
    _database("eventbridge", os.environ["LEDGER_PASSWORD"])
    for command in (["eventbridge", "ledger", "migrate"], ["airflow", "db", "migrate"]):
        if subprocess.run(command, check=False).returncode:
            sys.exit(f"{' '.join(command)} failed")
    _bucket("eventbridge")
    _topics(os.environ["TOPICS"].split(), int(os.environ["PARTITIONS"]))
    passwords = Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
    passwords.touch(0o600)
    passwords.write_text(json.dumps({"admin": os.environ["AIRFLOW_PASSWORD"]}))


def _database(name: str, password: str) -> None:
    """Create a database and its owner role; set the role's password even if the role exists."""
    with psycopg.connect(os.environ["DATABASE_ADMIN_URL"], autocommit=True) as connection:
        with suppress(psycopg.errors.DuplicateObject):
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(name), sql.Literal(password)))
        with suppress(psycopg.errors.DuplicateDatabase):
            text = "CREATE DATABASE {} OWNER {} TEMPLATE template0 ENCODING 'UTF8'"
            connection.execute(sql.SQL(text).format(sql.Identifier(name), sql.Identifier(name)))


def _bucket(name: str) -> None:
    connection = json.loads(os.environ["EVENTBRIDGE_CONN_STORE"])
    client = boto3.client(
        "s3",
        aws_access_key_id=connection["login"],
        aws_secret_access_key=connection["password"],
        config=Config(signature_version="s3v4", s3={"addressing_style": "path"}),
        **connection["extra"],
    )
    if name not in [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]:
        client.create_bucket(Bucket=name)


def _topics(names: list[str], partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": os.environ["KAFKA_SERVERS"]})
    for asked in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
        try:
            asked.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


if __name__ == "__main__":
    main()
