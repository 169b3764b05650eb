"""A real Kafka broker for tests: one node as controller and broker, on free ports of 127.0.0.1."""

from __future__ import annotations

import base64
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import certificates
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from demo.ports import reserve
from java_tools import ToolMissing, fetch, java_program, require
from services.cache import CACHE, listens

from eventbridge.model.partition import Partition

HERE: Final = Path(__file__).parent
VERSION: Final = "4.4.0"
JARS: Final = CACHE / f"kafka-{VERSION}"
#: The user of the listener with TLS and passwords.
USER: Final = "flights"
PASSWORD: Final = "a secret of the tests"

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=OPEN://127.0.0.1:{open},BEHIND://127.0.0.1:{behind},\\
  SECURE://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=OPEN://127.0.0.1:{open},BEHIND://127.0.0.1:{proxy},SECURE://127.0.0.1:{secure}
controller.listener.names=CONTROLLER
inter.broker.listener.name=OPEN
listener.security.protocol.map=OPEN:PLAINTEXT,BEHIND:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT
listener.name.secure.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.secure.plain.sasl.jaas.config={jaas}
listener.name.secure.scram-sha-256.sasl.jaas.config={scram}
listener.name.secure.scram-sha-512.sasl.jaas.config={scram}
listener.name.secure.oauthbearer.sasl.jaas.config={tokens}
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={folder}/broker.pem
log.dirs={folder}/logs
num.network.threads=2
num.io.threads=2
num.recovery.threads.per.data.dir=1
log.cleaner.dedupe.buffer.size=2097152
log.cleaner.threads=1
log.cleaner.backoff.ms=200
background.threads=2
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
controlled.shutdown.enable=true
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=300
auto.create.topics.enable=false
"""
_JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";'
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
#: Accepts unsigned tokens until they expire.
_TOKENS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
_LOGGING = """\
rootLogger.level=warn
rootLogger.appenderRef.f.ref=f
appender.f.type=Console
appender.f.name=f
appender.f.layout.type=PatternLayout
appender.f.layout.pattern=%d %p %c %m%n
"""
_OPTIONS: Final = (
    "-Xms64m",
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.net.preferIPv4Stack=true",
)
_START_SECONDS = 60.0
_END_SECONDS = 15.0


@dataclass
class Kafka:
    """One broker with its data in a folder; it can be stopped, killed and restarted on the same ports."""

    folder: Path
    ports: dict[str, int] = field(
        default_factory=lambda: {name: reserve() for name in ("open", "secure", "controller")}
    )
    _process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        for name in ("behind", "proxy"):  # the broker's own port behind a test's proxy, and the proxy's port
            self.ports.setdefault(name, reserve())

    def __enter__(self) -> Self:
        if not (self.folder / "logs" / "meta.properties").exists():
            self._format()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def servers(self) -> str:
        """Its address without TLS and password."""
        return f"127.0.0.1:{self.ports['open']}"

    @property
    def connection(self) -> str:
        """The URI of its connection."""
        return f"kafka://{self.servers}"

    @property
    def ca(self) -> Path:
        """The CA certificate of its other listener."""
        return self.folder / "ca.pem"

    def start(self) -> None:
        """Start it and wait until it responds; raises ToolMissing if it does not."""
        log = self.folder / "kafka.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self.folder / "server.properties")),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        end = time.monotonic() + _START_SECONDS
        while not listens(self.ports["open"]):
            if self._process.poll() is not None or time.monotonic() > end:
                words = log.read_text(errors="replace").strip()[-500:]
                raise ToolMissing(f"Kafka does not start: {words or 'it says nothing'} Use Java 17 or later.")
            time.sleep(0.05)

    def end(self) -> None:
        """Stop it cleanly, and wait until it has ended."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """Kill it by SIGKILL, like a power failure."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _format(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        ca = certificates.ca()
        self.ca.write_bytes(ca.certificate)
        certificates.vouched_for(ca).write(self.folder / "broker.pem")
        jaas = _JAAS.format(user=USER, password=PASSWORD)
        properties = _PROPERTIES.format(folder=self.folder, jaas=jaas, scram=_SCRAM, tokens=_TOKENS, **self.ports)
        (self.folder / "server.properties").write_text(properties)
        (self.folder / "log4j2.properties").write_text(_LOGGING)
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        cluster = f"A{cluster[1:]}"  # a leading hyphen would be read as an option
        command = self._command("kafka.tools.StorageTool", "format", "-t", cluster)
        for number in (256, 512):
            command += ["--add-scram", f"SCRAM-SHA-{number}=[name={USER},password={PASSWORD}]"]
        done = subprocess.run(
            [*command, "-c", str(self.folder / "server.properties")], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ToolMissing(f"Kafka's folder cannot be made: {(done.stdout + done.stderr).strip()[-500:]}")

    def _command(self, *words: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.folder}/log4j2.properties"
        return [java_program("java"), *_OPTIONS, logging, "-cp", f"{fetch_kafka()}/*", *words]


def make_topics(kafka: Kafka, *topics: str, partitions: int = 1, **settings: str) -> None:
    """Create empty topics without time retention, as a test's clock may be old; recreate existing ones."""
    settings = {"retention.ms": "-1"} | settings
    admin = _admin(kafka.servers)
    there = [topic for topic in topics if topic in admin.list_topics(timeout=10).topics]
    _done(admin.delete_topics(there, operation_timeout=10) if there else {})
    while any(topic in there for topic in admin.list_topics(timeout=10).topics):  # the broker learns of it later
        pass
    made = [NewTopic(topic, partitions, 1, config=settings) for topic in topics]
    while True:
        try:
            _done(admin.create_topics(made, operation_timeout=10))
            break
        except KafkaException as error:  # deletion takes a moment
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    while not _are_led(admin, topics):  # the broker learns of it from the controller
        pass


def _admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


def _are_led(admin: AdminClient, topics: Sequence[str]) -> bool:
    found = admin.describe_topics(TopicCollection(list(topics)))
    try:
        return all(part.leader is not None for future in found.values() for part in future.result().partitions)
    except KafkaException:
        return False


def add_partitions(kafka: Kafka, topic: str, partitions: int) -> None:
    """Increase the number of partitions of a topic."""
    admin = _admin(kafka.servers)  # keep a reference until it is done
    _done(admin.create_partitions([NewPartitions(topic, partitions)]))


def drop_before(uri: str, offsets: Mapping[Partition, int]) -> None:
    """Delete the messages of partitions before an offset each, like retention does."""
    admin = _admin(uri.removeprefix("kafka://"))
    asked = admin.delete_records(
        [TopicPartition(partition.topic, partition.partition_id, offset) for partition, offset in offsets.items()]
    )
    for future in asked.values():
        future.result()


def _done(asked: Mapping[str, Future[Any]]) -> None:
    for future in asked.values():
        future.result()


def fetch_kafka() -> Path:
    """Return the folder of Kafka's jars, filled by Maven if it is missing; raises ToolMissing."""
    require(java_program("java"), "Java, 17 or later,", "openjdk-17-jre-headless")
    done = JARS / ".fetched"
    if not done.exists():
        fetch("Kafka", HERE / "kafka-pom.xml", JARS)
        done.touch()
    return JARS
