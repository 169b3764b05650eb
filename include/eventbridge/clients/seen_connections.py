"""Reads connections for plug-ins, and removes their secrets from what the code of a plug-in says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from eventbridge.config.connection import Connection
from eventbridge.config.redaction import SecretForm, forms_of, veiled
from eventbridge.rules.fields import is_secret_name


class SeenConnections:
    """Reads connections for one object of a plug-in, and collects their secrets, which its errors must not show."""

    def __init__(self, read: Callable[[str], Connection]) -> None:
        self._read = read
        self._secrets: set[str] = set()
        self._forms: tuple[SecretForm, ...] = ()

    def __call__(self, connection_id: str) -> Connection:
        """Return the connection; raises ConnectionUnusable."""
        found = self._read(connection_id)
        secrets = {each for each in (found.password, *_secrets_in(found.extra)) if each}
        if not secrets <= self._secrets:
            self._secrets |= secrets
            self._forms = forms_of(self._secrets)
        return found

    def veil(self, text: str) -> str:
        """Return a text without the secrets of all connections that were read; half characters are escaped.

        Cut a text afterwards, because half a secret would not be found.
        """
        encoded = text.encode("utf-8", "backslashreplace")
        return veiled(encoded, self._forms).decode("utf-8", "replace")


def _secrets_in(extra: Mapping[str, object], *, is_secret: bool = False) -> Iterator[str]:
    """Yield the values of an extra, and of objects in it, whose names are those of secrets."""
    for name, value in extra.items():
        is_named = is_secret or is_secret_name(str(name))
        if isinstance(value, Mapping):
            yield from _secrets_in(value, is_secret=is_named)
        elif is_named:
            yield str(value)
