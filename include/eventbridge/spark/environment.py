"""Finds Java for the Spark processes that EventBridge starts, and builds their environment: allowed names only, no
secrets.

Route workers need the connections of the store and the bus. These are in a file that only its owner can read and whose
path is in the environment.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from eventbridge.config.connection import PREFIX
from eventbridge.errors import ConnectionUnusable, PackageMissing, SparkError
from eventbridge.spark.class_archive import archive_flags

#: The minimum version of Java, which Spark 4.2 needs (class files of Java 17, jdk.incubator.vector).
LEAST_JAVA = 17

_INSTALL = "sudo apt-get install -y openjdk-17-jre-headless"

#: A fast start matters more than peak speed, because Python does most of the work and little of Spark's own code runs.
JVM_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: Selects the daemon from which Spark forks its Python workers, so that they are ready without a warm-up.
WORKER_DAEMON = {"spark.python.daemon.module": "eventbridge.spark.worker_daemon"}


def require_java() -> None:
    """Raise SparkError, which names the command that installs Java, unless there is a Java that Spark can use."""
    java = find_java()
    if java is None:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME is {home}, where there is none" if home else "there is none on PATH"
        raise SparkError(f"Spark needs Java {LEAST_JAVA} or later and {where}: {_INSTALL}")
    command, environ = [str(java), "-version"], drop_secrets(os.environ)
    output = subprocess.run(command, capture_output=True, text=True, check=False, env=environ).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    version = int(found[1]) if found else 0
    if version < LEAST_JAVA:
        raise SparkError(f"Spark needs Java {LEAST_JAVA} or later and {java} is version {version}: {_INSTALL}")


def find_java() -> Path | None:
    """Return the program of Java, or None: that of JAVA_HOME if this variable is set, else the first on PATH."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    return Path(java) if java is not None and Path(java).exists() else None


def spark_home() -> Path:
    """Return the folder of the installed pyspark package, without importing it. Raises PackageMissing."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise PackageMissing.from_package("pyspark")
    return Path(found.origin).parent


def spark_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a Spark process on this machine: no secrets, this Python for its workers, loopback
    only."""
    return drop_secrets(environ) | {
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def submit_command(
    master: str, folder: Path, confs: Mapping[str, str], memory: str, java_flags: str | None = None
) -> list[str]:
    """Return the first arguments of spark-submit for a local Spark that keeps its files in `folder`.

    Java uses the archive of Spark's classes, unless there are other `java_flags`.
    """
    java = find_java()
    if java_flags is None:
        java_flags = "" if java is None else archive_flags(java, spark_home())
    loopback = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        # Without it, a task that exhausts Java's memory ends its executor, which all tasks share here.
        "spark.executor.killOnFatalError.depth": "0",
        **WORKER_DAEMON,
        "spark.driver.extraJavaOptions": f"{JVM_FLAGS} {java_flags}".strip(),
    }
    if master.startswith("local"):
        loopback["spark.authenticate"] = (
            "true"  # Spark generates the secret: other users' processes can reach its ports too
        )
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", master, "--driver-memory", memory]
    for name, value in {**loopback, **confs}.items():
        command += ["--conf", f"{name}={value}"]
    return command


#: The variable that holds the path of the workers' secrets, a file with a JSON object of variables.
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
    """.split()  # noqa: SIM905 - a list of names is easier to read like this
)
_PREFIXES: Final = ("LC_", "NUMBA_", "OMP_", "OPENBLAS_", "PYTHON")
_PROXIES: Final = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"})
#: The variables that only workers get.
_SECRET: Final = frozenset({"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"})


def drop_secrets(environ: Mapping[str, str]) -> dict[str, str]:
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
    """Return a Spark worker's variables, including its secrets, and set the AWS keys for AWS's own client.

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
