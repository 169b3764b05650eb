"""The demo's environment: nothing of the user's, nothing left running, nothing that hides a loss."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
from demo import places, services
from demo.places import DemoError, environment, fresh, load, save
from demo.ports import listens, reserve
from demo.progress import takes_all
from demo.receipts import compare, duplicates, read_record
from demo.services import left_behind, stop_groups
from demo.standings import standings, unexpected
from demo.tally import Tally

from eventbridge.config.connection import connections_from_environment
from eventbridge.config.settings import Settings
from eventbridge.errors import LedgerError
from eventbridge.ledger import Ledger
from eventbridge.model.target_state import TargetStatus
from eventbridge.rule import RuleSet, load_rules
from eventbridge.stages.runtime.runtime import Runtime
from eventbridge.store.open import open_store
from eventbridge.targets.file.fields import FileFields

ROOT = Path(__file__).parents[2]

#: Ignores SIGTERM, has a child that does too, prints the child's process id, and stays.
_STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


def test_stubborn_services_are_ended_with_their_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM first; what is left of the group after that is killed, a leader's children included."""
    monkeypatch.setattr(services, "_POLITE_SECONDS", 0.4)
    leader = subprocess.Popen(
        [sys.executable, "-c", _STUBBORN], stdout=subprocess.PIPE, start_new_session=True, text=True
    )
    assert leader.stdout is not None
    child = int(leader.stdout.readline())
    leader.stdout.close()
    stop_groups({"stubborn": leader.pid})
    end = time.monotonic() + 10
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < end
        time.sleep(0.01)

    assert leader.poll() is not None or not psutil.pid_exists(leader.pid)


def test_ending_what_has_ended_is_harmless() -> None:
    """`make down` after a crash, or twice."""
    done = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    done.wait()
    stop_groups({"gone": done.pid})


def test_a_process_id_that_was_used_anew_is_left_alone(tmp_path: Path) -> None:
    """`make down` ends the processes it noted, known by id and start, and nobody else's."""
    mine = psutil.Process()
    noted = {"mine": [mine.pid, mine.create_time()], "again": [mine.pid, 1.0], "gone": [2**22 - 3, 5.0]}
    (tmp_path / "pids.json").write_text(json.dumps(noted))

    assert left_behind(tmp_path) == {"mine": mine.pid}
    assert left_behind(tmp_path / "nowhere") == {}


def test_the_services_see_nothing_of_the_users_airflow(tmp_path: Path) -> None:
    """Settings of another Airflow or product are dropped; all paths lie below the folder; only loopback listens."""
    made = fresh(tmp_path / "demo")
    users = {"AIRFLOW__CORE__EXECUTOR": "Users", "AIRFLOW_HOME": "/users", "EVENTBRIDGE_HOME": "/users", "LANG": "C"}
    given = environment(made, users)

    assert "/users" not in given.values()
    assert "AIRFLOW__CORE__EXECUTOR" not in given
    assert given["LANG"] == "C"
    assert given["AIRFLOW__API__HOST"] == "127.0.0.1"
    assert given["AIRFLOW_HOME"].startswith(str(tmp_path))
    assert len(given["AIRFLOW__API_AUTH__JWT_SECRET"]) >= 64
    assert (made.airflow_home / "config" / "airflow_local_settings.py").is_file()


def test_places_are_found_again_and_are_nobody_elses(tmp_path: Path) -> None:
    """What `make up` wrote down is what `load` reads; the folder holds a password."""
    made = fresh(tmp_path / "demo")
    save(made)

    assert load(tmp_path / "demo") == made
    assert (tmp_path / "demo").stat().st_mode & 0o077 == 0
    with pytest.raises(DemoError, match="make up"):
        load(tmp_path / "nowhere")


def test_the_command_line_sees_the_demo_by_its_settings_file(tmp_path: Path) -> None:
    """Sourcing settings.sh gives a shell the product's settings, quoted as a shell needs them."""
    made = fresh(tmp_path / "a demo")
    save(made)
    script = f"source '{made.folder}/settings.sh' && env -0"
    told = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    shell = dict(line.split("=", 1) for line in told.split("\0") if line)

    assert {name: shell[name] for name in places.shell_settings(made)} == places.shell_settings(made)
    assert shell["EVENTBRIDGE_SPARK_REMOTE"] == made.spark_url


def test_a_store_in_a_bucket_is_known_to_all_who_need_it(tmp_path: Path) -> None:
    """STORE=s3: tasks, Spark's workers and the command line get URI and connection; by default there is none."""
    made = fresh(tmp_path / "demo", store="s3")
    save(made)
    given = environment(made, {})
    folder = fresh(tmp_path / "other")

    assert given["EVENTBRIDGE_STORE_URI"] == "s3://eventbridge_store@eventbridge/demo"
    assert f"127.0.0.1%3A{made.s3_port}" in given["AIRFLOW_CONN_EVENTBRIDGE_STORE"]
    assert given["EVENTBRIDGE_CONN_EVENTBRIDGE_STORE"] == given["AIRFLOW_CONN_EVENTBRIDGE_STORE"]
    assert places.store_settings(made).items() <= places.product_settings(made).items()
    assert load(tmp_path / "demo") == made
    assert not places.store_settings(folder)
    assert "AIRFLOW_CONN_EVENTBRIDGE_STORE" not in environment(folder, {})


def test_a_ledger_on_a_server_is_known_to_all(tmp_path: Path) -> None:
    """LEDGER=postgresql: its URL, with the environment's own password; by default there is none."""
    made = fresh(tmp_path / "demo", ledger="postgresql")
    url = f"postgresql://postgres:{made.password}@127.0.0.1:{made.ledger_port}/postgres"

    assert environment(made, {})["EVENTBRIDGE_LEDGER_URL"] == url
    assert "EVENTBRIDGE_LEDGER_URL" not in environment(fresh(tmp_path / "other"), {})
    with pytest.raises(DemoError, match="LEDGER is 'mysql'; it must be sqlite or postgresql"):
        fresh(tmp_path / "demo", ledger="mysql")


def test_the_ledgers_server_asks_for_the_password_and_ends(tmp_path: Path) -> None:
    """It takes the ledger once started, refuses whoever has no password, and is gone when the others are."""
    made = fresh(tmp_path / "demo", ledger="postgresql")
    running = services.Services(made)
    url = environment(made, {})["EVENTBRIDGE_LEDGER_URL"]
    try:
        running._start_postgresql()
        running._make_ledger()

        assert Ledger.open(url).batches() == []
        with pytest.raises(LedgerError, match="password"):
            Ledger.open(url.replace(made.password, "guessed"))
    finally:
        running.stop()
    with pytest.raises(LedgerError, match="Connection refused"):
        Ledger.open(url, busy_timeout_seconds=0.1)


@pytest.mark.parametrize("bus", ["kafka", "rocketmq"])
def test_a_bus_on_a_broker_is_known_to_all_and_ends(tmp_path: Path, bus: str) -> None:
    """BUS=...: the copy of the rules names it, the connection leads to it, and it is gone when the others are."""
    made = fresh(tmp_path / "demo", bus=bus)
    running = services.Services(made)
    given = environment(made, {})
    try:
        running._start_broker()
        running._make_ledger()
        work = Runtime.open(Settings.from_mapping(given), connections_from_environment(given))
        with closing(work), closing(work.open_publisher(work.rule_set().buses["flights"])) as publisher:
            places_of = publisher.publish([(b"{}", None)] * 4)
    finally:
        running.stop()

    assert {queue.queue_id for queue, _ in places_of} == {0, 1, 2, 3}
    assert given["AIRFLOW_CONN_DEMO_BUS"] == given["EVENTBRIDGE_CONN_DEMO_BUS"]
    assert "AIRFLOW_CONN_DEMO_BUS" not in environment(fresh(tmp_path / "other"), {})
    assert not any(listens(port) for port in made.bus_ports)
    with pytest.raises(DemoError, match="BUS is 'sqs'; it must be embedded, kafka, rocketmq"):
        fresh(tmp_path / "demo", bus="sqs")


def test_a_store_of_another_kind_is_refused_before_anything_is_emptied(tmp_path: Path) -> None:
    """A typo in STORE is told, and what is there stays."""
    made = fresh(tmp_path / "demo")
    with pytest.raises(DemoError, match="STORE is 'S3'; it must be file or s3"):
        fresh(tmp_path / "demo", store="S3")

    assert made.home.is_dir()


def test_the_s3_server_runs_until_it_is_ended_last(tmp_path: Path) -> None:
    """It is there with its bucket once started, stays when the others end, and can be read meanwhile."""
    made = fresh(tmp_path / "demo", store="s3")
    running = services.Services(made)
    try:
        running._start_s3()
        settings = places.store_settings(made)
        store = open_store(settings["EVENTBRIDGE_STORE_URI"], connections_from_environment(settings))
        store.put("a/x", b"1")
        running.stop(but=["s3"])

        assert store.get("a/x") == b"1"
        assert "s3" in left_behind(made.folder)
    finally:
        running.stop()

    assert left_behind(made.folder) == {}


def test_a_port_is_given_to_one_environment_only() -> None:
    """Not to two that look before either has bound it, and not while somebody listens there."""
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
    """Nothing has to be cleaned up after a process that was killed."""
    code = "from demo.ports import reserve; import os, signal; print(reserve(), flush=True); os.kill(os.getpid(), 9)"
    killed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    port = int(killed.stdout)

    assert killed.returncode == -signal.SIGKILL
    assert reserve(port) == port


def test_a_folder_is_given_to_one_environment_only(tmp_path: Path) -> None:
    """Of two that start in one checkout the second is told, and empties nothing."""
    made = fresh(tmp_path / "demo")
    code = f"from demo.places import fresh; from pathlib import Path; fresh(Path({str(tmp_path / 'demo')!r}))"
    second = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)

    assert "Another environment" in second.stderr.splitlines()[-1]
    assert made.airflow_home.is_dir()
    assert fresh(tmp_path / "demo").airflow_port != made.airflow_port


def test_environments_share_no_port_and_no_file(tmp_path: Path) -> None:
    """The shipped rules of one deliver to its own receiver and files, those of the checkout's environment never."""
    one, other = fresh(tmp_path / "one"), fresh(tmp_path / "other")
    ports = [(made.airflow_port, made.spark_port, made.receiver_port) for made in (one, other)]
    shipped = set(destinations(load_rules(ROOT / places.RULES_FOLDER)))
    ones, others = (set(destinations(load_rules(made.rules_folder))) for made in (one, other))

    assert len({*ports[0], *ports[1], 8080, 15002, 8765}) == 9
    assert len(shipped) == len(ones) == len(others)
    assert len(shipped | ones | others) == 3 * len(shipped)
    assert {name.split("/")[2] for name in ones if "://" in name} == {f"127.0.0.1:{one.receiver_port}"}
    assert {name.rpartition("/")[0] for name in ones if "://" not in name} == {str(tmp_path / "one" / "files")}


def test_the_checkouts_environment_uses_the_shipped_rules_while_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a person edits while `make up` runs is what runs; with the receiver's port taken it is told to be a copy."""
    monkeypatch.setattr(places, "FOLDER", tmp_path / "demo")
    monkeypatch.setattr(places, "RECEIVER_PORT", reserve())
    taken = fresh(tmp_path / "demo")
    monkeypatch.setattr(places, "reserve", lambda wanted=None: wanted)
    free = fresh(tmp_path / "demo")

    assert (free.rules_folder, free.rules) == (places.RULES_FOLDER, "include/rules")
    assert taken.rules_folder == tmp_path / "demo" / "rules"
    assert f"names the receiver's port {taken.receiver_port}" in taken.rules


def destinations(rules: RuleSet) -> list[str]:
    """Return the URLs and files of all targets."""
    targets = [target for rule in rules.rules.values() for target in rule.targets.values()]
    return [target.path if isinstance(target, FileFields) else target.url for target in targets]


def test_the_demo_waits_for_every_target_that_answers() -> None:
    """Healthy, slow and flaky targets and files must have everything; those of /bad, /gone and /hang need not."""
    rules = load_rules(ROOT / "include" / "rules")
    waited_for = {f"{rule}/{target}" for rule, target in takes_all(rules)}
    every = {f"{rule.name}/{target}" for rule in rules.enabled().values() for target in rule.targets}

    assert every - waited_for == {
        "unknown-registrations/registry",
        "pacific-codeshares/partner",
        "diversions/desk",
    }


@pytest.fixture
def rules(tmp_path: Path) -> RuleSet:
    """Return a rule with an http and a file target."""
    text = f"""
buses: {{b: {{source: {{type: embedded}}}}}}
rules:
  r:
    bus: b
    pattern: {{}}
    targets:
      web: {{type: http, url: "http://127.0.0.1:1/healthy/r", allow_http: true}}
      log: {{type: file, path: {tmp_path}/log.jsonl}}
"""
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "r.yaml").write_text(text)
    return load_rules(folder)


def record(tmp_path: Path, *requests: tuple[str, int | None]) -> Path:
    """Write a receiver's record of (webhook-id, status)."""
    path = tmp_path / "received.jsonl"
    lines = [{"at": "", "path": "/healthy/r", "webhook_id": name, "status": status} for name, status in requests]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_receivers_record_is_compared_id_by_id(rules: RuleSet, tmp_path: Path) -> None:
    """A delivery too few or too many is told; a refusal, no answer and a second acceptance are none."""
    (tmp_path / "log.jsonl").write_text("{}\n{}\n")
    requests = [("a", 503), ("a", 200), ("a", 200), ("b", None), ("c", 200)]
    seen = read_record(record(tmp_path, *requests))
    right = {("r", "web"): Tally(delivered={"a", "c"}), ("r", "log"): Tally(delivered={"a", "c"})}
    lost = {("r", "web"): Tally(delivered={"a", "b", "c"}), ("r", "log"): Tally(delivered={"a", "b", "c"})}
    extra = {("r", "web"): Tally(delivered={"a"}), ("r", "log"): Tally(delivered={"a"})}

    few, many = dict(compare(rules, lost, seen)), dict(compare(rules, extra, seen))

    assert dict(compare(rules, right, seen)) == {"r/web": "", "r/log": ""}
    assert few["r/web"] == "1 delivered by the books, never accepted by the receiver, such as b"
    assert few["r/log"].startswith("3 delivered, 2 lines")
    assert many["r/web"] == "1 accepted by the receiver, not delivered by the books, such as c"
    assert many["r/log"].startswith("1 delivered, 2 lines")
    assert duplicates(seen) == 1


def test_how_targets_stand_at_the_end_is_told_and_compared() -> None:
    """The one that hangs is degraded, the flaky one ok, the one that is gone disabled; few deliveries say nothing."""
    rules = load_rules(ROOT / "include" / "rules")
    at = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    desk, rebooking, partner = [
        TargetStatus(*key, state, reason, at)
        for key, state, reason in (
            (("diversions", "desk"), "degraded", "16 of 16 attempts failed within 30 s"),
            (("missed-connections", "rebooking"), "ok", ""),
            (("pacific-codeshares", "partner"), "disabled", "the target answered 410"),
        )
    ]
    right = {(each.rule, each.target): each for each in (desk, rebooking, partner)}
    wrong = {("missed-connections", "rebooking"): replace(rebooking, state="degraded", reason="slow")}
    matched = {"diversions/desk": 139, "missed-connections/rebooking": 449, "pacific-codeshares/partner": 189}

    lines = list(standings(rules, right))

    assert "diversions/desk: degraded since 12:00:00 UTC, 16 of 16 attempts failed within 30 s" in lines
    assert lines[-1] == f"{len(takes_all(rules)) + 1} others: ok"
    assert list(unexpected(rules, right, matched)) == []
    assert sorted(unexpected(rules, wrong, matched)) == [
        "diversions/desk is ok after 139 deliveries, and should be degraded",
        "missed-connections/rebooking is degraded (slow) after 449 deliveries, and should be ok",
        "pacific-codeshares/partner is ok after 189 deliveries, and should be disabled",
    ]
    assert list(unexpected(rules, {}, {"diversions/desk": 5})) == []


def test_quantiles_are_of_what_was_measured() -> None:
    """The median and the 99th percentile of 100 times, and none of none."""
    many = Tally(seconds=[float(number) for number in range(100, 0, -1)])

    assert (many.quantile(0.5), many.quantile(0.99), Tally().quantile(0.5)) == (51.0, 100.0, None)


def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path) -> None:
    """Ctrl-C while the services start: exit code 130, every process ended, in a demo folder of its own."""
    code = (
        "import sys; from pathlib import Path; import demo.run as run; from demo.places import fresh;"
        f"run.chosen = lambda: fresh(Path({str(tmp_path / 'demo')!r}));"
        "run.left_behind = lambda: {}; sys.exit(run.main())"
    )
    demo = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, start_new_session=True, env=os.environ)
    pids = tmp_path / "demo" / "pids.json"
    end = time.monotonic() + 120
    while not (pids.exists() and "receiver" in pids.read_text()):
        assert demo.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    noted = Counter(pid for pid, _ in json.loads(pids.read_text()).values())
    os.kill(demo.pid, signal.SIGINT)

    assert demo.wait(60) == 130
    assert left_behind(tmp_path / "demo") == {}
    assert not [pid for pid in noted if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]
