"""Event Ruler in one thread of a Java process, and as a jar with a function for Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.match.kernel import Pass
from benchmarks.match.remote import BenchError
from oracle import ruler

from eventbridge.spark.environment import spark_home

_SOURCES: Final = Path(__file__).parent / "java"


def fetched_jars() -> list[Path]:
    """Return Event Ruler's jar and those it needs, fetched by Maven as `make oracle` does.

    Raises BenchError with the command that installs what is missing.
    """
    require_tools()
    try:
        ruler.prepare()
    except ruler.OracleMissing as missing:
        raise BenchError(str(missing)) from None
    return sorted(ruler.BUILT.glob("*.jar"))


def require_tools() -> None:
    """Raise BenchError, with one command for all of it, unless a JDK and Maven are there."""
    tools = {"java": _java("java"), "javac": _java("javac"), "mvn": "mvn"}
    missing = [name for name, program in tools.items() if shutil.which(program) is None]
    if missing:
        packages = sorted({"maven" if name == "mvn" else "openjdk-17-jdk-headless" for name in missing})
        raise BenchError(
            f"Event Ruler, which everything is compared with, needs a JDK of 17 or later and Maven; not found: "
            f"{', '.join(missing)}. Install: sudo apt-get install -y {' '.join(packages)}"
        )


def compile_sources(jars: list[Path], folder: Path) -> Path:
    """Compile the Java sources into `folder` and return a jar of what came out."""
    classpath = ":".join([*map(str, jars), str(spark_home() / "jars" / "*")])
    sources = [str(source) for source in _SOURCES.glob("*.java")]
    compiled = subprocess.run(
        [_java("javac"), "-cp", classpath, "-d", str(folder), *sources], capture_output=True, text=True, check=False
    )
    if compiled.returncode:
        raise BenchError(f"The Java sources do not compile: {compiled.stderr.strip()} Use Java 17 or later.")
    with zipfile.ZipFile(folder / "bench-match.jar", "w") as jar:
        for file in sorted(folder.glob("*.class")):
            jar.write(file, file.name)
    return folder / "bench-match.jar"


class EventRuler:
    """A Java process with Machines and events by name; ends with the context."""

    def __init__(self, jars: list[Path]) -> None:
        # One thread matches; the serial collector and a large heap cost it least.
        options = ["-XX:+UseSerialGC", "-Xms2g", "-Xmx6g", "-cp", ":".join(map(str, jars))]
        self._process = subprocess.Popen(
            [_java("java"), *options, "BenchRuler"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def events(self, name: str, file: Path) -> None:
        """Take the events of a file, one a line."""
        self._ask("events", name, file)

    def compile(self, name: str, rules: Path) -> float:
        """Make a Machine of the rules of a file, one a line; return the CPU-seconds it took."""
        return float(self._ask("rules", name, rules))

    def measure(self, rules: str, events: str, seconds: float) -> Pass:
        """Match events in turn until so many CPU-seconds are spent."""
        count, spent, matches = self._ask("measure", rules, events, seconds).split()
        return Pass(int(count), float(spent), int(matches))

    def counts(self, rules: str, events: str, number: int) -> list[int]:
        """Return how many of the first events each rule matches."""
        return [int(count) for count in self._ask("count", rules, events, number).split()]

    def forget(self, name: str) -> None:
        """Drop a Machine."""
        self._ask("forget", name)

    def _ask(self, *words: object) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        result = self._process.stdout.readline()
        if not result:
            raise BenchError(f"Event Ruler's process ended at the command {words[0]}; its error is above.")
        return result.strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()


def _java(program: str) -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / program) if home else program
