"""The demo's environment is separate from the user's Airflow and from other environments."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from demo import clean_up, config, down
from demo.config import DemoError, environment, existing_config, load, new_config, save
from demo.ports import reserve
from demo.up import summary

from eventbridge.rules import RuleSet
from eventbridge.rules.load import load_rules
from eventbridge.targets.file.fields import FileFields

ROOT = Path(__file__).parents[2]


def test_the_services_see_nothing_of_the_users_airflow(tmp_path: Path) -> None:
    """The user's settings are dropped, all paths are in the folder, and services listen only on loopback."""
    made = new_config(tmp_path / "demo")
    users = {"AIRFLOW__CORE__EXECUTOR": "Users", "AIRFLOW_HOME": "/users", "EVENTBRIDGE_HOME": "/users", "LANG": "C"}
    given = environment(made, users)

    assert "/users" not in given.values()
    assert "AIRFLOW__CORE__EXECUTOR" not in given
    assert given["LANG"] == "C"
    assert given["AIRFLOW__API__HOST"] == "127.0.0.1"
    assert given["AIRFLOW_HOME"].startswith(str(tmp_path))
    assert len(given["AIRFLOW__API_AUTH__JWT_SECRET"]) >= 64
    assert (made.airflow_home / "config" / "airflow_local_settings.py").is_file()


def test_a_saved_configuration_is_loaded_and_is_private(tmp_path: Path) -> None:
    """`load` reads what `make up` saved; the folder is private, as it contains a password."""
    made = new_config(tmp_path / "demo")
    save(made)

    assert load(tmp_path / "demo") == made
    assert (tmp_path / "demo").stat().st_mode & 0o077 == 0
    with pytest.raises(DemoError, match="make up"):
        load(tmp_path / "nowhere")


def test_the_summary_shows_the_address_of_the_page(tmp_path: Path) -> None:
    """It is at the environment's own Airflow, with user and password."""
    made = new_config(tmp_path / "demo")
    lines = [line.split() for line in summary(made, 31.4).splitlines()]

    assert ["page", f"http://127.0.0.1:{made.airflow_port}/plugin/eventbridge"] in lines
    assert ["Airflow", made.url, "user", "admin", "password", made.password] in lines


def test_the_command_line_uses_the_demo_by_its_settings_file(tmp_path: Path) -> None:
    """settings.sh exports EventBridge's settings, with shell quoting."""
    made = new_config(tmp_path / "a demo")
    save(made)
    script = f"source '{made.folder}/settings.sh' && env -0"
    exported = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    shell = dict(line.split("=", 1) for line in exported.split("\0") if line)

    assert {name: shell[name] for name in config.shell_settings(made)} == config.shell_settings(made)
    assert shell["EVENTBRIDGE_SPARK_REMOTE"] == made.spark_url


def test_every_process_gets_the_settings_of_a_store_in_a_bucket(tmp_path: Path) -> None:
    """STORE=s3: tasks, Spark's workers and the command line get URI and connection; by default they get none."""
    made = new_config(tmp_path / "demo", store="s3")
    save(made)
    given = environment(made, {})
    folder = new_config(tmp_path / "other")

    assert given["EVENTBRIDGE_STORE_URI"] == "s3://eventbridge_store@eventbridge/demo"
    assert f"127.0.0.1%3A{made.s3_port}" in given["AIRFLOW_CONN_EVENTBRIDGE_STORE"]
    assert given["EVENTBRIDGE_CONN_EVENTBRIDGE_STORE"] == given["AIRFLOW_CONN_EVENTBRIDGE_STORE"]
    assert config.store_settings(made).items() <= config.product_settings(made).items()
    assert load(tmp_path / "demo") == made
    assert not config.store_settings(folder)
    assert "AIRFLOW_CONN_EVENTBRIDGE_STORE" not in environment(folder, {})


def test_sparks_workers_get_the_connections_of_buses(tmp_path: Path) -> None:
    """They land large batches, so they get the connections of buses, but not settings for tasks, such as the receiver's
    secret."""
    broker = {"EVENTBRIDGE_CONN_BROKER": "kafka://127.0.0.1:9", "EVENTBRIDGE_BATCH_MAX_EVENTS": "9"}
    made = new_config(tmp_path / "demo", settings=broker)

    assert config.spark_settings(made) == {"EVENTBRIDGE_CONN_BROKER": "kafka://127.0.0.1:9"}


def test_every_process_gets_the_url_of_a_ledger_on_a_server(tmp_path: Path) -> None:
    """LEDGER=postgresql: the URL has the environment's own password; by default there is none."""
    made = new_config(tmp_path / "demo", ledger="postgresql")
    url = f"postgresql://postgres:{made.password}@127.0.0.1:{made.ledger_port}/postgres"

    assert environment(made, {})["EVENTBRIDGE_LEDGER_URL"] == url
    assert "EVENTBRIDGE_LEDGER_URL" not in environment(new_config(tmp_path / "other"), {})
    with pytest.raises(DemoError, match="LEDGER is 'mysql'; it must be sqlite or postgresql"):
        new_config(tmp_path / "demo", ledger="mysql")


def test_streaming_mode_is_two_lines_of_the_rules(tmp_path: Path) -> None:
    """MODE=streaming: the shipped rules, with their runner in streaming mode."""
    made, usual = new_config(tmp_path / "demo", mode="streaming"), new_config(tmp_path / "other")
    rules = load_rules(config.ROOT / made.rules_folder)

    assert rules.mode_of("flights").mode == "streaming"
    assert rules.rules.keys() == load_rules(config.ROOT / usual.rules_folder).rules.keys()
    assert load_rules(config.ROOT / usual.rules_folder).mode_of("flights").mode == "batch"
    with pytest.raises(DemoError, match="MODE is 'fast'; it must be batch or streaming"):
        new_config(tmp_path / "third", mode="fast")


def test_an_unknown_store_is_refused_before_anything_is_removed(tmp_path: Path) -> None:
    """A typo in STORE is reported, and existing data stay."""
    made = new_config(tmp_path / "demo")
    with pytest.raises(DemoError, match="STORE is 'S3'; it must be file or s3"):
        new_config(tmp_path / "demo", store="S3")

    assert made.home.is_dir()


def test_a_port_is_reserved_for_one_environment() -> None:
    """A reserved port is not given to another environment, nor is a port on which a process listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = taken.getsockname()[1]
        assert reserve(busy) != busy
    port = reserve()
    code = f"from demo.ports import reserve; print(reserve({port}), reserve())"
    others = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert len({port, reserve(port), *map(int, others.split())}) == 4


def test_a_port_is_free_again_once_its_environment_has_ended() -> None:
    """A killed process releases its ports."""
    code = "from demo.ports import reserve; import os, signal; print(reserve(), flush=True); os.kill(os.getpid(), 9)"
    killed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    port = int(killed.stdout)

    assert killed.returncode == -signal.SIGKILL
    assert reserve(port) == port


def test_a_folder_is_locked_by_one_environment(tmp_path: Path) -> None:
    """If two environments start in one checkout, the second one fails, and removes nothing."""
    made = new_config(tmp_path / "demo")
    code = f"from demo.config import new_config; from pathlib import Path; new_config(Path({str(tmp_path / 'demo')!r}))"
    second = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)

    assert "Another process" in second.stderr.splitlines()[-1]
    assert made.airflow_home.is_dir()
    assert new_config(tmp_path / "demo").airflow_port != made.airflow_port


def test_environments_share_no_port_and_no_file(tmp_path: Path) -> None:
    """Each environment's rules deliver to its own receiver and below its own home."""
    one, other = new_config(tmp_path / "one"), new_config(tmp_path / "other")
    ports = [(made.airflow_port, made.spark_port, made.receiver_port) for made in (one, other)]
    shipped = set(destinations(load_rules(ROOT / config.RULES_FOLDER)))
    ones, others = (set(destinations(load_rules(made.rules_folder))) for made in (one, other))

    assert len({*ports[0], *ports[1], 8080, 15002, 8765}) == 9
    assert len(shipped) == len(ones) == len(others)
    files = {name for name in shipped if "://" not in name}
    assert len(shipped | ones | others) == 3 * len(shipped) - 2 * len(files)
    assert {name.split("/")[2] for name in ones if "://" in name} == {f"127.0.0.1:{one.receiver_port}"}
    assert {one.home, other.home} == {tmp_path / "one" / "eventbridge", tmp_path / "other" / "eventbridge"}
    assert not any(name.startswith("/") for name in files)


def test_an_environment_works_with_a_copy_of_the_shipped_rules(tmp_path: Path) -> None:
    """Changing or adding a rule changes no file of the checkout."""
    made = new_config(tmp_path / "demo")

    assert made.rules_folder == tmp_path / "demo" / "rules"
    assert load_rules(made.rules_folder).rules.keys() == load_rules(ROOT / config.RULES_FOLDER).rules.keys()


def test_a_restarted_environment_keeps_its_data(tmp_path: Path) -> None:
    """Passwords, ports, ledger, archive, rules and Airflow's database stay; an empty folder has no environment."""
    folder = tmp_path / "demo"
    assert existing_config(tmp_path / "new", {}) is None
    first = in_another_process(folder, "new_config(folder)")
    files = ("eventbridge/ledger.db", "airflow/airflow.db", "rules/mine.yaml")
    for file in files:
        (folder / file).write_text("mine")
    again = existing_config(folder, {"store": "file", "mode": "batch"})

    assert again is not None
    assert again == load(folder)
    assert again.password == first
    assert {
        (folder / file).read_text() for file in ("eventbridge/ledger.db", "airflow/airflow.db", "rules/mine.yaml")
    } == {"mine"}


def test_other_options_for_an_existing_environment_are_refused(tmp_path: Path) -> None:
    """STORE=s3 with existing data in a folder is an error that names the command to remove them; nothing is removed."""
    folder = tmp_path / "demo"
    in_another_process(folder, "new_config(folder)")
    with pytest.raises(DemoError, match=r"has STORE=file, not s3\. `make clean-up` removes it"):
        existing_config(folder, {"store": "s3"})

    assert (folder / "config.json").exists()


def test_an_environment_whose_port_is_taken_names_the_port(tmp_path: Path) -> None:
    """Its rules have the receiver's port, so it cannot use another one."""
    folder = tmp_path / "demo"
    in_another_process(folder, "new_config(folder)")
    port = load(folder).receiver_port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(DemoError, match=f"Port {port}, which the environment in .* uses, is taken"):
            existing_config(folder, {})


def test_only_clean_up_removes_an_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make down` keeps every file; `make clean-up` removes the environment, its ledger's folder, and the demo's."""
    up, run = tmp_path / "demo", tmp_path / "demo-run"
    for module in (down, clean_up):
        monkeypatch.setattr(module, "FOLDER", up)
        monkeypatch.setattr(module, "RUN_FOLDER", run)
    in_another_process(up, "new_config(folder, ledger='postgresql')")
    in_another_process(run, "new_config(folder)")
    ledger = Path(load(up).ledger_folder)
    ledger.mkdir(exist_ok=True)
    before = sorted(up.rglob("*"))
    assert down.main() == 0
    assert sorted(up.rglob("*")) == before

    assert clean_up.main() == 0
    assert not any(folder.exists() for folder in (up, run, ledger))


def in_another_process(folder: Path, code: str) -> str:
    """Create an environment in another process, which then ends and releases its locks; return its password."""
    imports = "from pathlib import Path; from demo.config import new_config, save"
    code = f"{imports}; folder = Path({str(folder)!r}); made = {code}"
    command = [sys.executable, "-c", f"{code}; save(made); print(made.password)"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def destinations(rules: RuleSet) -> list[str]:
    """Return the URLs and paths of all targets."""
    targets = [target for rule in rules.rules.values() for target in rule.targets.values()]
    return [target.path if isinstance(target, FileFields) else target.url for target in targets]
