"""Fetches Event Ruler by Maven, compiles the driver and asks it; everything it makes lies in `.oracle/`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from java_tools import ToolMissing, fetch, java_program, require

HERE: Final = Path(__file__).parent
BUILT: Final = HERE.parents[1] / ".oracle"
DRIVER: Final = HERE / "AskRuler.java"
POM: Final = HERE / "pom.xml"


class OracleMissing(Exception):
    """Event Ruler cannot be run here; the message is one line with the remedy."""


def prepare() -> None:
    """Fetch the jars and compile the driver, unless that was done since `pom.xml` and the driver changed."""
    made = BUILT / "AskRuler.class"
    if made.exists() and made.stat().st_mtime > max(POM.stat().st_mtime, DRIVER.stat().st_mtime):
        return
    try:
        require(java_program("javac"), "Java's compiler, 17 or later,", "openjdk-17-jdk-headless")
        shutil.rmtree(BUILT, ignore_errors=True)
        BUILT.mkdir()
        fetch("Event Ruler", POM, BUILT)
    except ToolMissing as missing:
        raise OracleMissing(str(missing)) from None
    compiled = _run([java_program("javac"), "-cp", f"{BUILT}/*", "-d", str(BUILT), str(DRIVER)])
    if compiled.returncode:
        raise OracleMissing(f"The driver does not compile: {compiled.stdout.strip()} Use Java 17 or later.")


class Asked:
    """Questions that a Java process works on while something else is done here."""

    def __init__(self, questions: Iterable[tuple[str, list[str]]]) -> None:
        asked, self._results, self._errors = BUILT / "questions.jsonl", BUILT / "results.txt", BUILT / "errors.txt"
        with asked.open("w", encoding="utf-8") as lines:
            lines.writelines(json.dumps({"rule": rule, "events": events}) + "\n" for rule, events in questions)
        # What is shaped like an address and is none (1.2.3.999) Event Ruler looks up in the DNS: here in an empty file.
        hosts = BUILT / "hosts"
        hosts.touch()
        options = ["-XX:+UseSerialGC", f"-Djdk.net.hosts.file={hosts}", "-cp", f"{BUILT}:{BUILT}/*"]
        with asked.open("rb") as stdin, self._results.open("wb") as stdout, self._errors.open("wb") as stderr:
            command = [java_program("java"), *options, "AskRuler"]
            self._process = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr)

    def results(self) -> list[str]:
        """Return one result per question: a character per event (`1`, `0`, `!` for a failure), or `refused: why`."""
        if self._process.wait():
            reported = self._errors.read_text(errors="replace").strip()[:500]
            raise OracleMissing(f"Event Ruler's driver failed: {reported} Remove {BUILT} and run it again.")
        return self._results.read_text(encoding="utf-8").split("\n")[:-1]


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
