"""The settings of a client: name servers, credentials, TLS, timeouts."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Tls:
    """The TLS settings of a client.

    `ca_file` is a PEM file with the CA certificates that verify servers; if it is empty, the CA certificates that this
    machine trusts apply. `certificate` and `key` are the files of the client certificate, if any. If `check_name` is
    False, the server's host name is not verified.
    """

    ca_file: str = ""
    certificate: str = ""
    key: str = ""
    check_name: bool = True

    def context(self) -> ssl.SSLContext:
        """Return the SSL context. Raises OSError (ssl.SSLError) if a file cannot be used."""
        context = ssl.create_default_context(cafile=self.ca_file or None)
        context.check_hostname = self.check_name
        if self.certificate:
            context.load_cert_chain(self.certificate, self.key or None)
        return context


@dataclass(frozen=True)
class ClientSettings:
    """Settings of a client; `name_servers` are `host:port`. Without `access_key` requests are not signed.

    `timeout_seconds` limits opening a connection and each response. `look_seconds` limits a broker's response to the
    frequent request for end offsets; a slower broker is not asked again for `away_seconds`. `read_group` is the
    consumer group for reading ranges, one that every broker has.
    """

    name_servers: Sequence[str]
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    tls: Tls | None = None
    timeout_seconds: float = 15.0
    look_seconds: float = 5.0
    away_seconds: float = 30.0
    read_group: str = "TOOLS_CONSUMER"
