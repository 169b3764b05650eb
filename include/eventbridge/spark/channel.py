"""The gRPC channel to a Spark Connect server, authenticated by the server's pre-shared token."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from eventbridge.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql.connect.client import DefaultChannelBuilder


def without_token(url: str) -> str:
    """Return a Connect URL without its token, for messages."""
    head, _, parameters = url.partition("/;")
    kept = [part for part in parameters.split(";") if part and not part.startswith("token=")]
    return f"{head}/;{';'.join(kept)}" if kept else head


def with_token(url: str, token: str | None) -> str:
    """Return a Connect URL with a token, unless it already has one or the token is empty."""
    if not token or "token" in _parameters(url):
        return url
    head, _, parameters = url.rstrip("/").partition("/;")
    return f"{head}/;" + ";".join([*filter(None, [parameters]), f"token={quote(token, safe='')}"])


def is_cleartext(url: str) -> bool:
    """Return whether the channel to a Connect URL is without TLS.

    That is so for use_ssl=false, and by default if the URL has no token or leads to this machine.
    """
    parameters = _parameters(url)
    use_ssl = parameters.get("use_ssl", "").lower()
    if use_ssl not in ("", "true", "false"):
        raise UserError(f"use_ssl of {without_token(url)} is {use_ssl!r}. Write true or false.")
    if use_ssl:
        return use_ssl == "false"
    return "token" not in parameters or _is_here(urlsplit(url).hostname or "")


def channel_builder(url: str) -> DefaultChannelBuilder:
    """Return the builder of a channel to a Connect URL; its token is sent with every call.

    PySpark itself sends a token only over TLS, or to `localhost`, which over IPv6 may be another server.
    """
    from pyspark.sql.connect.client import DefaultChannelBuilder

    class TokenChannel(DefaultChannelBuilder):
        """A channel without TLS whose calls carry the URL's token; with TLS, PySpark's own channel is used."""

        @property
        def token(self) -> str | None:
            """Return the URL's token, ignoring the environment's, which belongs to another server."""
            token: str | None = self.getDefault(self.PARAM_TOKEN, None)
            return token

        def toChannel(self) -> Any:
            """Open the channel."""
            return self._insecure_channel(self.endpoint) if clear else super().toChannel()

        def metadata(self) -> Iterable[tuple[str, str]]:
            """Return the metadata of every call."""
            proof = [("authorization", f"Bearer {self.token}")] if clear and self.token else []
            return [*super().metadata(), *proof]

    clear = is_cleartext(url)
    return TokenChannel(url)


def _parameters(url: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in url.partition("/;")[2].split(";") if part)
    return {name: unquote(value) for name, _, value in pairs}


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
