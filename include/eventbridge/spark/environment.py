"""The environment of Spark processes that we start: allowed names only, no secrets.

Route workers need the connections of store and bus. These are in a file readable only by its owner, whose path is in
the environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from eventbridge.config.connection import PREFIX
from eventbridge.errors import ConnectionUnusable

#: The variable with the path of the workers' secrets: a JSON object of variables.
SECRETS_FILE: Final = "EVENTBRIDGE_WORKER_SECRETS"

#: The variable in which a Spark Connect server and PySpark find the token.
TOKEN: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"

_NAMES: Final = frozenset(
    """
    HOME LANG LANGUAGE LD_LIBRARY_PATH LOGNAME PATH SHELL SSL_CERT_DIR SSL_CERT_FILE TEMP TMP TMPDIR TZ USER VIRTUAL_ENV
    JAVA_HOME JAVA_TOOL_OPTIONS
    AWS_CA_BUNDLE AWS_CONFIG_FILE AWS_DEFAULT_REGION AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 AWS_PROFILE AWS_REGION
    AWS_ROLE_ARN AWS_ROLE_SESSION_NAME AWS_SHARED_CREDENTIALS_FILE AWS_WEB_IDENTITY_TOKEN_FILE
    AWS_CONTAINER_CREDENTIALS_FULL_URI AWS_CONTAINER_CREDENTIALS_RELATIVE_URI AWS_EC2_METADATA_DISABLED
    """.split()  # noqa: SIM905 - a list of names is easier to read so
)
_PREFIXES: Final = ("LC_", "NUMBA_", "OMP_", "OPENBLAS_", "PYTHON")
_PROXIES: Final = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"})
#: Variables for workers only.
_SECRET: Final = frozenset({"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"})


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a Spark process: allowed names, and proxies without a password."""
    return {
        name: value
        for name, value in environ.items()
        if name in _NAMES or name.startswith(_PREFIXES) or (name.upper() in _PROXIES and "@" not in value)
    }


def write_secrets(environ: Mapping[str, str], file: Path) -> None:
    """Write the workers' variables into a new file of mode 0600, replacing an existing one."""
    kept = {name: value for name, value in environ.items() if name.startswith(PREFIX) or name in _SECRET}
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "w") as output:
        json.dump(kept, output)


@lru_cache(maxsize=1)
def worker_variables() -> Mapping[str, str]:
    """Return a Spark worker's variables, including its secrets; sets the keys for AWS's own client.

    Raises ConnectionUnusable if the file cannot be read.
    """
    path = os.environ.get(SECRETS_FILE)
    if not path:
        return os.environ
    try:
        secrets = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise ConnectionUnusable(f"{SECRETS_FILE} names a file that cannot be read: {type(error).__name__}") from None
    os.environ.update({name: value for name, value in secrets.items() if name in _SECRET})
    return {**os.environ, **secrets}
