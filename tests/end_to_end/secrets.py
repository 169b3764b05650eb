"""A connection with secrets for targets of the tests, and a search for secrets in the files of an environment."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from demo.s3_server import ACCESS_KEY, SECRET_KEY
from end_to_end.running import RunningEnvironment
from written import texts, texts_of

_PASSWORD = "e2e-hu5h-password"
_HMAC = base64.b64encode(b"the key of signatures, hu5h").decode()
_ED25519 = base64.b64encode(b"the seed of a key, of 32 letters").decode()
_CONNECTION = json.dumps(
    {
        "conn_type": "http",
        "login": "shop",
        "password": _PASSWORD,
        "extra": {"any_host": True, "signing_secret": f"whsec_{_HMAC} whsk_{_ED25519}"},
    }
)

#: The variables with which Airflow and the command line have the connection `guarded`.
GUARDED = {"AIRFLOW_CONN_GUARDED": _CONNECTION, "EVENTBRIDGE_CONN_GUARDED": _CONNECTION}

#: Login and password as they are sent.
_BASIC = base64.b64encode(f"shop:{_PASSWORD}".encode()).decode()
_SECRETS = (_PASSWORD, _BASIC, _HMAC, _ED25519, ACCESS_KEY, SECRET_KEY)

#: The files in which connections are stored, and the S3 server's own file.
_HOLD_THEM = {"config.json", "settings.sh", "s3.journal", "spark/worker-secrets.json"}


def written_secrets(running: RunningEnvironment) -> list[tuple[str, str]]:
    """Return (file, secret) for each secret in the files of the environment or in its bucket."""
    return [(name, each) for name, text in _written(running) for each in _SECRETS if each.encode() in text]


def airflow_logs(running: RunningEnvironment) -> bytes:
    """Return the logs of all Airflow tasks."""
    return b"\n".join(text for _, text in texts(running.config.airflow_home / "logs"))


def _written(running: RunningEnvironment) -> Iterator[tuple[str, bytes]]:
    held = {str(running.config.folder / name) for name in _HOLD_THEM}
    for name, text in texts(running.config.folder):
        if name not in held:
            yield name, text
    store = running.runtime.store
    for path in store.list("") if store.uri.startswith("s3:") else ():
        yield from texts_of(f"{store.uri}/{path}", store.get(path))
