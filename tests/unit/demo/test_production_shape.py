"""docker-compose.yaml is valid, publishes only local ports, and matches what `make up-production` runs."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import jsonschema
import pytest
from demo.config import ROOT, DemoError
from demo.production import env
from demo.production.compose import FILE, Service, document, services, substitute
from demo.production.native import ADDED, Substitutions
from s3proxy.server import JAR, SHA256
from services.compose_schema import compose_schema

SECRETS = env.random_secrets()
WHOLE = document(SECRETS)


@pytest.fixture
def native(tmp_path: Path) -> Substitutions:
    """The services as `make up-production` runs them."""
    return Substitutions(services(SECRETS), tmp_path)


def test_the_file_conforms_to_the_compose_specification() -> None:
    """Its JSON schema accepts the file."""
    schema = compose_schema()
    found = {name: value for name, value in WHOLE.items() if name != "name"}  # newer than that schema

    assert [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(found)] == []
    assert WHOLE["name"] == "eventbridge"


def test_only_the_ui_and_the_api_are_published_and_only_locally() -> None:
    """No other service publishes a port, and none uses the host's network."""
    published = {name: fields["ports"] for name, fields in WHOLE["services"].items() if "ports" in fields}

    assert published == {"airflow-api": ["127.0.0.1:8080:8080"], "eventbridge-api": ["127.0.0.1:8090:8090"]}
    assert not any(fields.get("network_mode") or fields.get("privileged") for fields in WHOLE["services"].values())


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_no_secret_has_a_default(name: str) -> None:
    """Without it the file is refused, with the name of the variable and the remedy."""
    with pytest.raises(DemoError, match=f"{name} is not set: run make env"):
        services({key: value for key, value in SECRETS.items() if key != name})


def test_the_example_names_every_variable_and_no_secret() -> None:
    """Every variable of the file is in .env.example, with the same default; secrets are empty there."""
    example = dict(re.findall(r"(?m)^([A-Z_0-9]+)=(.*)$", env.EXAMPLE.read_text()))
    asked = {name: other for name, _, other in re.findall(r"\$\{([A-Z_0-9]+)(:[-?])?([^}]*)\}", FILE.read_text())}

    assert set(example) == set(asked)
    assert {name: example[name] for name in SECRETS} == dict.fromkeys(SECRETS, "")
    assert {name: value for name, value in example.items() if name not in SECRETS} == {
        name: other for name, other in asked.items() if name not in SECRETS
    }


def test_make_env_writes_random_private_secrets_once(tmp_path: Path) -> None:
    """A second call changes nothing, as the passwords are in use."""
    env.write(file=tmp_path / ".env")
    written = (tmp_path / ".env").read_text()
    env.write(file=tmp_path / "other")

    with pytest.raises(FileExistsError):
        env.write(file=tmp_path / ".env")
    assert (tmp_path / ".env").read_text() == written
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600
    values = [
        dict(re.findall(r"(?m)^([A-Z_0-9]+)=(.*)$", text)) for text in (written, (tmp_path / "other").read_text())
    ]
    assert all(len(value[name]) >= 32 for value in values for name in SECRETS)
    assert all(values[0][name] != values[1][name] for name in SECRETS)


def test_the_image_has_what_its_services_run() -> None:
    """.dockerignore includes what the Dockerfile copies; versions agree."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    let_through = re.findall(r"(?m)^!(.+)$", (ROOT / ".dockerignore").read_text())
    own = [fields for fields in WHOLE["services"].values() if fields["image"].startswith("eventbridge:")]
    used = re.findall(r"/opt/eventbridge/([\w/.]+)", " ".join(str(fields) for fields in own))

    assert all((ROOT / path).exists() for path in [*let_through, *used])
    assert {path.split("/")[0] for path in used} <= set(let_through)
    assert set(re.findall(r"(?m)^COPY ([\w./]+) ", dockerfile)) - {"."} <= set(let_through)
    assert {fields["image"] for fields in own} == {f"eventbridge:{version('eventbridge-airflow')}"}
    assert f"{SHA256}  /build/{JAR.name.split('-')[0]}.jar" in dockerfile


def test_dependencies_have_health_checks() -> None:
    """A service on which others depend has a health check, or ends; every volume is declared."""
    for fields in WHOLE["services"].values():
        for other, how in fields.get("depends_on", {}).items():
            ends = how["condition"] == "service_completed_successfully"
            assert ends == (WHOLE["services"][other]["restart"] == "no")
            assert ends or "healthcheck" in WHOLE["services"][other]
    mounted = {each.split(":")[0] for fields in WHOLE["services"].values() for each in fields.get("volumes", [])}
    assert {name for name in mounted if not name.startswith((".", "/"))} == set(WHOLE["volumes"])


def test_both_shapes_run_the_same_commands_with_the_same_settings(native: Substitutions) -> None:
    """A native process has the file's command and environment, apart from addresses and folders."""
    for service in services(SECRETS).values():
        for process in native.processes(service):
            own = {name: value for name, value in process.environment.items() if name not in ADDED}
            back = _named_back(native, service, process.address)
            assert {name: back(value) for name, value in own.items()} == {
                name: back(value) for name, value in service.environment.items()
            }
            assert [back(word) for word in process.command] == [back(word) for word in service.command]


def test_every_container_has_bounded_logs() -> None:
    """Each service has the logging driver that rotates its logs."""
    assert {name: fields.get("logging") for name, fields in WHOLE["services"].items()} == {
        name: {"driver": "local"} for name in WHOLE["services"]
    }


def test_every_process_gets_every_setting() -> None:
    """Scheduler, workers, triggerer and API use the same ledger and store."""
    own = [each for each in services(SECRETS).values() if each.is_own and not each.name.startswith(("s3", "spark"))]
    settings = WHOLE["x-settings"]

    assert len(own) >= 7
    for service in own:
        assert settings.items() <= service.environment.items(), service.name


def test_an_empty_variable_takes_the_default_and_two_dollars_are_one() -> None:
    """Variables are substituted as in the specification."""
    assert substitute("${A:-one} ${B:-two} $$HOME", {"A": "", "B": "2"}) == "one 2 $HOME"


def test_only_hosts_are_replaced_by_addresses(native: Substitutions) -> None:
    """A bucket, a path or a word that equals a service's name stays as it is."""
    service = services(SECRETS)["s3"]
    texts = ("s3://store@eventbridge/x", "http://s3:9000", "kafka://kafka:9092", "-Dx=/tmp/s3", "1@kafka:9093")
    s3, kafka = native.address("s3"), native.address("kafka")

    assert native.here(service, texts) == (
        "s3://store@eventbridge/x",
        f"http://{s3}:9000",
        f"kafka://{kafka}:9092",
        "-Dx=/tmp/s3",
        f"1@{kafka}:9093",
    )


def _named_back(native: Substitutions, service: Service, address: str) -> Callable[[str], str]:
    """Return a function that turns local addresses and folders back into those of the file."""
    names = {native.address(other.name, 0): other.name for other in services(SECRETS).values()}
    names |= {address: service.name, "0.0.0.0": service.name}
    names |= {str(folder): path for path, folder in native.paths(service).items()}
    pattern = re.compile("|".join(rf"{re.escape(each)}(?![\w.])" for each in sorted(names, key=len, reverse=True)))
    return lambda text: pattern.sub(lambda found: names[found[0]], text)


def test_old_rows_and_logs_are_removed_and_newer_ones_stay(tmp_path: Path) -> None:
    """Each round has Airflow delete rows older than KEEP_DAYS, and deletes logs even if that fails."""
    programs, logs, asked = tmp_path / "bin", tmp_path / "logs", tmp_path / "asked"
    programs.mkdir()
    for name, text in (("airflow", f'echo "$@" >> {asked}\nexit 1'), ("sleep", "exit 3")):  # the loop ends there
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o700)
    for name, days in (("old/1.log", 31), ("mixed/old.log", 31), ("mixed/new.log", 29)):
        file = logs / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        for each in (file, file.parent):
            os.utime(each, (time.time() - days * 86_400,) * 2)
    environ = {"PATH": f"{programs}:{os.defpath}", "KEEP_DAYS": "30", "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(logs)}

    done = subprocess.run(
        ["sh", ROOT / "deploy" / "clean.sh"], env=environ, capture_output=True, text=True, check=False
    )

    before = datetime.now(UTC) - timedelta(days=30)
    (words,) = asked.read_text().splitlines()
    assert (done.returncode, "tried again tomorrow" in done.stderr) == (3, True)
    assert words.startswith("db clean --yes --skip-archive --clean-before-timestamp ")
    assert abs(datetime.fromisoformat(words.split()[-1]) - before) < timedelta(minutes=5)
    assert [str(each.relative_to(logs)) for each in sorted(logs.rglob("*.log"))] == ["mixed/new.log"]
