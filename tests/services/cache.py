"""The folder of the checkout with the packages of real servers, filled by `make services` or on demand."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Final

CACHE: Final = Path(__file__).parents[2] / ".services"


def listens(port: int) -> bool:
    """Return whether a process responds on a port of 127.0.0.1."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
