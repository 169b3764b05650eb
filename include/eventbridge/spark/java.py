"""Finds Java, and provides the environment and flags of Spark's processes."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from eventbridge.errors import PackageMissing, SparkError
from eventbridge.spark.environment import without_secrets

#: Required by Spark 4.2 (class files of Java 17, jdk.incubator.vector).
LEAST_JAVA = 17

_INSTALL = "sudo apt-get install -y openjdk-17-jre-headless"

#: Little of Spark's own code runs here, the work is in Python: a fast start matters more than peak speed.
JVM_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: The daemon from which Spark forks its Python workers, so that they are ready at once.
WORKER_DAEMON = {"spark.python.daemon.module": "eventbridge.spark.worker_daemon"}


def require_java() -> None:
    """Raise SparkError, with the command that installs Java, unless there is a Java that Spark can use."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME is {home}, where there is none" if home else "there is none on PATH"
        raise SparkError(f"Spark needs Java {LEAST_JAVA} or later and {where}: {_INSTALL}")
    command, environ = [java, "-version"], without_secrets(os.environ)
    output = subprocess.run(command, capture_output=True, text=True, check=False, env=environ).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    version = int(found[1]) if found else 0
    if version < LEAST_JAVA:
        raise SparkError(f"Spark needs Java {LEAST_JAVA} or later and {java} is version {version}: {_INSTALL}")


def spark_home() -> Path:
    """Return the folder of the installed pyspark package, without importing it; raises PackageMissing."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise PackageMissing.named("pyspark")
    return Path(found.origin).parent


def spark_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a Spark process on this machine: no secrets, this Python for its workers, loopback."""
    return without_secrets(environ) | {
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def submit_command(master: str, folder: Path, confs: Mapping[str, str], memory: str) -> list[str]:
    """Return the first arguments of spark-submit for a local Spark that keeps its files in `folder`."""
    loopback = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        # Without it a task that exhausts Java's memory ends its executor, which here is shared by all.
        "spark.executor.killOnFatalError.depth": "0",
        **WORKER_DAEMON,
        "spark.driver.extraJavaOptions": JVM_FLAGS,
    }
    if master.startswith("local"):
        loopback["spark.authenticate"] = (
            "true"  # Spark generates the secret: other users' processes can reach its ports too
        )
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", master, "--driver-memory", memory]
    for name, value in {**loopback, **confs}.items():
        command += ["--conf", f"{name}={value}"]
    return command
