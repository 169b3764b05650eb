"""Stands for `python -m` with a module and its arguments: has the process of `warm.py` run it.

`client.py ADDRESS MODULE ARGUMENTS...`: with this process's descriptors, folder, environment, signals and exit code.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    """Run the command, and end as it does."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(f"\0{sys.argv[1]}")
        order = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode() + b"\n"  # noqa: PTH109  # an import of pathlib takes as long as the rest
        socket.send_fds(server, [order[:1]], [0, 1, 2])
        server.sendall(order[1:])
        responses = server.makefile("rb")
        process = int(responses.readline())

        def pass_on(number: int, _: object) -> None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

        for number in _PASSED_ON:
            signal.signal(number, pass_on)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        sys.exit(int(responses.readline() or 128 + signal.SIGKILL))


if __name__ == "__main__":
    main()
