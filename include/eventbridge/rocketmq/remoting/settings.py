"""What a client needs to know: where the name servers are, who it is, whether it speaks TLS, how long it waits."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Tls:
    """How the servers are known: by the file (PEM) of CA certificates, "": by those that this machine trusts.

    `certificate` and `key` are files by which they know us, if they ask. `check_name` False: any name will do.
    """

    ca_file: str = ""
    certificate: str = ""
    key: str = ""
    check_name: bool = True

    def context(self) -> ssl.SSLContext:
        """Return what wraps sockets; raises OSError (ssl.SSLError) where a file cannot be used."""
        context = ssl.create_default_context(cafile=self.ca_file or None)
        context.check_hostname = self.check_name
        if self.certificate:
            context.load_cert_chain(self.certificate, self.key or None)
        return context


@dataclass(frozen=True)
class ClientSettings:
    """Settings of a client; `name_servers` are `host:port`. Without `access_key` requests are not signed.

    `timeout_seconds` bounds each response, and opening a connection; `look_seconds` the response of a broker to where
    its queues end, which is asked often: one that takes longer is away for `away_seconds`. `read_group` is the consumer
    group in whose name ranges are read: one that each broker has.
    """

    name_servers: Sequence[str]
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    tls: Tls | None = None
    timeout_seconds: float = 15.0
    look_seconds: float = 5.0
    away_seconds: float = 30.0
    read_group: str = "TOOLS_CONSUMER"
