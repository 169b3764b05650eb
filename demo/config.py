"""The folders, ports and settings of an environment: `.demo/` of the checkout for `make up`, which keeps its state, and
`.demo-run/` for `make demo`, which starts with an empty folder every time."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import secrets
import shlex
import shutil
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from demo.ports import reserve
from demo.receiver import ADDRESSES
from demo.s3_server import connection_uri
from eventbridge.rules.files import SUFFIXES

ROOT = Path(__file__).resolve().parents[1]
#: The folder of `make up`, kept until `make clean-up`.
FOLDER = ROOT / ".demo"
#: The folder of `make demo` and of benchmarks; each start empties it.
RUN_FOLDER = ROOT / ".demo-run"

#: The shipped rule files. An environment uses a copy of them, so that the checkout stays unchanged.
RULES_FOLDER = Path("include/rules")

#: The usual ports. An environment uses others if these are taken, or if its folder is not one of the two above.
AIRFLOW_PORT = 8080
SPARK_PORT = 15002

#: The receiver's port in the shipped rule files.
RECEIVER_PORT = 8765

#: The variable in `settings.sh` with the receiver's URL.
RECEIVER = "DEMO_RECEIVER"

USER = "admin"


#: The store: a folder, or a bucket of the environment's own S3 server.
STORES = ("file", "s3")
#: The ledger: a file, or a database of the environment's own PostgreSQL server.
LEDGERS = ("sqlite", "postgresql")
#: The modes of the runner. Streaming mode adds two lines to the copy of the rule file.
MODES = ("batch", "streaming")
_STREAMING = {"\nrules:\n": "\nrunners:\n  flights: {mode: streaming, streaming: {idle: 10s}}\n\nrules:\n"}
#: The bus: embedded, or a topic of the environment's own broker, with this number of ports.
BUSES = {"embedded": 0, "kafka": 3, "rocketmq": 2}
#: The source in the shipped rule files, and its replacement.
EMBEDDED = "source: {type: embedded, start_at: earliest}"
ON_BROKER = "source: {{type: {bus}, connection: {connection}, topics: [flights], start_at: earliest}}"
BUCKET = "eventbridge"


class DemoError(Exception):
    """The demo cannot start or continue; the message says why and what to do."""


@dataclass(frozen=True)
class DemoConfig:
    """The configuration of one demo environment: folders, ports and secrets."""

    folder: Path
    airflow_port: int
    spark_port: int
    receiver_port: int
    rules_folder: Path
    password: str
    jwt_secret: str
    spark_token: str
    signing_secret: str
    #: EventBridge's settings, EVENTBRIDGE_..., that differ from the defaults.
    settings: dict[str, str] = field(default_factory=dict)
    #: The port of the S3 server of the store; 0: the store is a folder.
    s3_port: int = 0
    #: The port of the PostgreSQL server of ledger and buses; 0: they are files.
    ledger_port: int = 0
    #: The data folder of that server: outside this folder if root starts it, as the server then runs as another user.
    ledger_folder: str = ""
    #: The mode of the runner of the shipped rules.
    mode: str = MODES[0]
    #: The type of the bus, and the ports of its broker; clients use the first one.
    bus: str = "embedded"
    bus_ports: list[int] = field(default_factory=list)

    @property
    def airflow_home(self) -> Path:
        """AIRFLOW_HOME, with Airflow's database, its logs, and a link to config/."""
        return self.folder / "airflow"

    @property
    def home(self) -> Path:
        """EVENTBRIDGE_HOME: ledger, store and bus."""
        return self.folder / "eventbridge"

    @property
    def logs(self) -> Path:
        """The folder of the services' output."""
        return self.folder / "logs"

    @property
    def received(self) -> Path:
        """The file with the receiver's own record."""
        return self.folder / "received.jsonl"

    @property
    def url(self) -> str:
        """The URL of Airflow's UI and REST API."""
        return f"http://127.0.0.1:{self.airflow_port}"

    @property
    def spark_url(self) -> str:
        """The URL of the Spark Connect server, with its token."""
        return f"sc://127.0.0.1:{self.spark_port}/;token={self.spark_token}"


#: The folders that this process has locked, with the locked descriptor of each.
_locked: dict[Path, int] = {}


def new_config(
    folder: Path = FOLDER,
    *,
    rules_folder: Path = RULES_FOLDER,
    settings: Mapping[str, str] | None = None,
    store: str = STORES[0],
    ledger: str = LEDGERS[0],
    bus: str = "embedded",
    mode: str = MODES[0],
) -> DemoConfig:
    """Empty the folder and return the configuration of a new environment, with ports and files of its own.

    Its copy of the rule files names its own receiver and broker. Raises DemoError if an option is unknown, before
    anything is removed, or if another process has locked the folder.
    """
    _check("STORE", store, STORES)
    _check("LEDGER", ledger, LEDGERS)
    _check("BUS", bus, BUSES)
    _check("MODE", mode, MODES)
    empty(folder)
    usual = folder in (FOLDER, RUN_FOLDER)
    receiver_port = reserve(RECEIVER_PORT if usual else None)
    changes = {f"127.0.0.1:{RECEIVER_PORT}": f"127.0.0.1:{receiver_port}"}
    if BUSES[bus]:
        changes[EMBEDDED] = ON_BROKER.format(bus=bus, connection="demo_bus")
    if mode == "streaming":
        changes |= _STREAMING
    config = DemoConfig(
        folder,
        airflow_port=reserve(AIRFLOW_PORT if usual else None),
        spark_port=reserve(SPARK_PORT if usual else None),
        receiver_port=receiver_port,
        rules_folder=copy_rules(folder, ROOT / rules_folder, changes),
        password=secrets.token_urlsafe(9),
        jwt_secret=secrets.token_hex(32),
        spark_token=secrets.token_hex(32),
        signing_secret=new_signing_secret(),
        settings=dict(settings or {}),
        s3_port=reserve() if store == "s3" else 0,
        ledger_port=reserve() if ledger == "postgresql" else 0,
        ledger_folder=_ledger_folder(folder) if ledger == "postgresql" else "",
        mode=mode,
        bus=bus,
        bus_ports=[reserve() for _ in range(BUSES[bus])],
    )
    for made in (config.airflow_home, config.home, config.logs):
        made.mkdir(parents=True)
    (config.airflow_home / "config").symlink_to(ROOT / "config", target_is_directory=True)
    (config.airflow_home / "passwords.json").write_text(json.dumps({USER: config.password}))
    return config


def options(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the options of `new_config` that the variables STORE, LEDGER, BUS and MODE set."""
    chosen = {name: environ.get(name.upper(), "") for name in ("store", "ledger", "bus", "mode")}
    return {name: value for name, value in chosen.items() if value}


def existing_config(folder: Path, chosen: Mapping[str, str]) -> DemoConfig | None:
    """Return the configuration of the environment that exists in a folder; None if there is none.

    Raises DemoError if another process has locked the folder, if the environment has other options than the chosen
    ones, if one of its ports is taken, or if its ledger's folder is missing.
    """
    lock(folder)
    try:
        config = load(folder)
    except DemoError:
        return None
    has = {
        "store": STORES[bool(config.s3_port)],
        "ledger": LEDGERS[bool(config.ledger_port)],
        "bus": config.bus,
        "mode": config.mode,
    }
    for name, value in chosen.items():
        if has[name] != value:
            raise DemoError(
                f"The environment in {folder} has {name.upper()}={has[name]}, not {value}. `make clean-up` removes it "
                f"with all its data; then `make up {name.upper()}={value}` makes a new one."
            )
    ports = (config.airflow_port, config.spark_port, config.receiver_port, config.s3_port, config.ledger_port)
    for port in filter(None, (*ports, *config.bus_ports)):
        if reserve(port) != port:
            raise DemoError(
                f"Port {port}, which the environment in {folder} uses, is taken. Stop the process that listens on it "
                f"(`ss -ltnp 'sport = :{port}'` shows it), then run `make up` again."
            )
    if config.ledger_folder and not Path(config.ledger_folder).is_dir():
        raise DemoError(
            f"The ledger's folder {config.ledger_folder} no longer exists. `make clean-up` removes the rest of "
            "the environment; then `make up` makes a new one."
        )
    return config


def remove(folder: Path) -> bool:
    """Remove an environment with all its data; return whether there was one. Raises DemoError if it is running."""
    if not folder.exists():
        return False
    empty(folder)
    folder.rmdir()
    return True


def _check(name: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        *first, last = known
        raise DemoError(f"{name} is {value!r}; it must be {', '.join(first)} or {last}")


def _ledger_folder(folder: Path) -> str:
    if os.getuid():
        return str(folder / "postgresql")
    return tempfile.mkdtemp(prefix="eventbridge-postgresql-")


def new_signing_secret() -> str:
    """Return a new signing secret in the format of Standard Webhooks."""
    return f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}"


def empty(folder: Path) -> None:
    """Lock a folder until this process ends, and empty it; raises DemoError if another process has locked it."""
    lock(folder)
    with contextlib.suppress(DemoError):
        ledger = load(folder).ledger_folder
        if ledger and Path(ledger).exists():
            shutil.rmtree(ledger)
    for left in folder.iterdir():
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()


def lock(folder: Path) -> None:
    """Create the folder and lock it until this process ends; raises DemoError if another process has locked it."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)  # it contains the password and the logs
    if folder in _locked:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DemoError(
            f"Another process is starting an environment in {folder}, or runs one there. `make down` stops it."
        ) from None
    _locked[folder] = descriptor


def copy_rules(folder: Path, rules_folder: Path, changes: Mapping[str, str]) -> Path:
    """Copy the rule files into the folder, with text replaced by `changes`; return the folder of the copies."""
    own = folder / "rules"
    for file in rules_folder.rglob("*"):
        if file.suffix in SUFFIXES:
            copy = own / file.relative_to(rules_folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            text = file.read_text()
            for named, own_one in changes.items():
                text = text.replace(named, own_one)
            copy.write_text(text)
    return own


def save(config: DemoConfig) -> None:
    """Write the configuration to files: for `make down`, the next `make up`, and a user who needs the password."""
    (config.folder / "config.json").write_text(json.dumps(asdict(config), default=str, indent=1))
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in shell_settings(config).items()]
    (config.folder / "settings.sh").write_text("".join(lines))


def load(folder: Path = FOLDER) -> DemoConfig:
    """Return the configuration of the existing environment; raises DemoError if there is none."""
    try:
        found = json.loads((folder / "config.json").read_text())
    except FileNotFoundError:
        raise DemoError("There is no environment here. Start one with `make up`.") from None
    return DemoConfig(**found | {name: Path(found[name]) for name in ("folder", "rules_folder")})


def environment(config: DemoConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of every service: none of the user's own Airflow, no file outside the folder."""
    kept = {name: value for name, value in environ.items() if not name.startswith(("AIRFLOW", "EVENTBRIDGE_"))}
    return {
        **kept,
        "PATH": f"{ROOT / '.venv' / 'bin'}{os.pathsep}{environ.get('PATH', os.defpath)}",
        **product_settings(config),
        "AIRFLOW_HOME": str(config.airflow_home),
        "AIRFLOW_CONN_EVENTBRIDGE_AIRFLOW": f"http://{USER}:{config.password}@127.0.0.1:{config.airflow_port}/http",
        "AIRFLOW_CONN_EVENTBRIDGE_SPARK": f"spark-connect://:{config.spark_token}@127.0.0.1:{config.spark_port}",
        "AIRFLOW_CONN_FLIGHTS_RECEIVER": _receiver_connection(config),
        **({"AIRFLOW_CONN_DEMO_BUS": bus_connection(config)} if config.bus_ports else {}),
        **({"AIRFLOW_CONN_EVENTBRIDGE_STORE": connection_uri(config.s3_port)} if config.s3_port else {}),
        **{f"AIRFLOW__{name}": value for name, value in _airflow_options(config).items()},
        **{name: value for name, value in config.settings.items() if name.startswith("AIRFLOW__")},
    }


def product_settings(config: DemoConfig) -> dict[str, str]:
    """Return the settings with which the command line uses the same installation as the services."""
    return {
        "EVENTBRIDGE_ALLOW_ADDRESSES": ADDRESSES,
        **config.settings,
        "EVENTBRIDGE_HOME": str(config.home),
        "EVENTBRIDGE_RULES_FOLDER": str(config.rules_folder),
        "EVENTBRIDGE_CONN_FLIGHTS_RECEIVER": _receiver_connection(config),
        **({"EVENTBRIDGE_CONN_DEMO_BUS": bus_connection(config)} if config.bus_ports else {}),
        **_ledger_settings(config),
        **store_settings(config),
    }


def shell_settings(config: DemoConfig) -> dict[str, str]:
    """Return the variables for a person's shell: EventBridge's settings, Spark, and the receiver, for
    `demo.respond`.
    """
    return {
        **product_settings(config),
        "EVENTBRIDGE_SPARK_REMOTE": config.spark_url,
        RECEIVER: f"http://127.0.0.1:{config.receiver_port}",
    }


def spark_settings(config: DemoConfig) -> dict[str, str]:
    """Return the variables of Spark's workers: the store, and the connections of buses whose batches they land."""
    own = {name: value for name, value in config.settings.items() if name.startswith("EVENTBRIDGE_CONN_")}
    bus = {"EVENTBRIDGE_CONN_DEMO_BUS": bus_connection(config)} if config.bus_ports else {}
    return {**own, **bus, **store_settings(config)}


def store_settings(config: DemoConfig) -> dict[str, str]:
    """Return the URI and the connection of a store that is not a folder; Spark's workers need them too."""
    if not config.s3_port:
        return {}
    return {
        "EVENTBRIDGE_STORE_URI": f"s3://eventbridge_store@{BUCKET}/demo",
        "EVENTBRIDGE_CONN_EVENTBRIDGE_STORE": connection_uri(config.s3_port),
    }


def bus_connection(config: DemoConfig) -> str:
    """Return the connection to the environment's own broker."""
    return f"{config.bus}://127.0.0.1:{config.bus_ports[0]}"


def _ledger_settings(config: DemoConfig) -> dict[str, str]:
    if not config.ledger_port:
        return {}
    address = f"127.0.0.1:{config.ledger_port}"
    return {"EVENTBRIDGE_LEDGER_URL": f"postgresql://postgres:{config.password}@{address}/postgres"}


def _receiver_connection(config: DemoConfig) -> str:
    host = f"http://127.0.0.1:{config.receiver_port}"
    return json.dumps({"conn_type": "http", "host": host, "extra": {"signing_secret": config.signing_secret}})


def _airflow_options(config: DemoConfig) -> dict[str, str]:
    return {
        "CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "CORE__PARALLELISM": "8",
        "CORE__MAX_ACTIVE_TASKS_PER_DAG": "64",
        "CORE__MAX_MAP_LENGTH": "1024",
        "CORE__DEFAULT_TASK_RETRY_DELAY": "5",
        "CORE__DAGBAG_IMPORT_ERROR_TRACEBACKS": "False",
        "CORE__EXECUTION_API_SERVER_URL": f"{config.url}/execution/",
        "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(config.airflow_home / "passwords.json"),
        "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{config.airflow_home / 'airflow.db'}",
        "API__HOST": "127.0.0.1",
        "API__PORT": str(config.airflow_port),
        "API__BASE_URL": config.url,
        "API__WORKERS": "1",
        "API_AUTH__JWT_SECRET": config.jwt_secret,
        # Measured: a stage takes 0.2 s with these settings, 1.1 s without.
        "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.1",
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
        "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "15",
        # Not lower: a scheduler whose own heartbeat is late considers itself dead and resets its tasks.
        "SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "30",
        "SCHEDULER__JOB_HEARTBEAT_SEC": "2",
        "WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        "DAG_PROCESSOR__REFRESH_INTERVAL": "15",
        "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "30",
        "USAGE_DATA_COLLECTION__ENABLED": "False",
    }
