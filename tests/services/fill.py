"""`make services`: downloads the real servers that tests start, unless they exist."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from java_tools import ToolMissing
from s3proxy.server import fetch_s3proxy
from services.axe import fetch_axe
from services.cache import CACHE
from services.iceberg import fetch_iceberg
from services.kafka import fetch_kafka
from services.postgresql import fetch_postgresql
from services.prometheus import fetch_prometheus
from services.rocketmq import fetch_rocketmq

SERVERS: Final[dict[str, Callable[[], Path]]] = {
    "axe": fetch_axe,
    "Iceberg": fetch_iceberg,
    "Kafka": fetch_kafka,
    "PostgreSQL": fetch_postgresql,
    "Prometheus": fetch_prometheus,
    "RocketMQ": fetch_rocketmq,
    "s3proxy": fetch_s3proxy,
}


def main() -> int:
    """Download each server; print the missing ones and return 1 if a download fails."""
    CACHE.mkdir(exist_ok=True)
    for name, get in SERVERS.items():
        try:
            sys.stdout.write(f"{name}: {get()}\n")
        except ToolMissing as error:
            sys.stderr.write(f"{name}: {error}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
