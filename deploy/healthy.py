"""Checks the health of a service and reports it by the exit code. It imports little, as it runs every few seconds.

healthy.py tcp://HOST:PORT          a process listens there
healthy.py http://HOST:PORT/PATH    it responds with success
healthy.py URL COMPONENT            it returns Airflow's health, and this component is healthy
"""

from __future__ import annotations

import json
import socket
import sys
import urllib.request
from urllib.parse import urlsplit

_SECONDS = 5.0


def main(url: str, component: str = "") -> None:
    """Return if the service is healthy; otherwise raise an error."""
    address = urlsplit(url)
    if address.scheme == "tcp":
        socket.create_connection((address.hostname or "", address.port or 0), _SECONDS).close()
        return
    with urllib.request.urlopen(url, timeout=_SECONDS) as response:
        found = json.load(response) if component else {}
    if component and found[component]["status"] != "healthy":
        raise SystemExit(f"{component} is {found[component]['status']}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except OSError as error:
        raise SystemExit(f"{sys.argv[1]}: {error}") from None
