"""A real RocketMQ for tests: a name server and one broker, on free ports of 127.0.0.1."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final, Self

import certificates
from demo.ports import reserve
from java_tools import ToolMissing, fetch, java_program, require
from services.cache import CACHE
from services.own_network import OwnNetwork

from eventbridge.clients.rocketmq.remoting.client import Client
from eventbridge.clients.rocketmq.remoting.errors import RemotingError
from eventbridge.clients.rocketmq.remoting.messages import OutgoingMessage
from eventbridge.clients.rocketmq.remoting.settings import ClientSettings

HERE: Final = Path(__file__).parent
VERSION: Final = "5.5.0"
JARS: Final = CACHE / f"rocketmq-{VERSION}"
#: The brokers, by the names of their ports; the second one is optional.
BROKERS: Final = {"broker": "broker-a", "second": "broker-b"}
BROKER: Final = BROKERS["broker"]
#: The user if `secured`.
USER: Final = "flights"
PASSWORD: Final = "a-secret-of-the-tests"

#: The size in bytes of the files of the message log; retention deletes whole files.
_FILE_BYTES: Final = 2 << 20
_FILLER: Final = "filler"

# Each flush of the timers scans a wheel of 38 MB that only a restarted broker reads: once a second, it would take a
# quarter of a CPU.
_BROKER = """\
brokerClusterName=tests
brokerName={name}
brokerId=0
namesrvAddr=127.0.0.1:{names}
brokerIP1=127.0.0.1
brokerIP2=127.0.0.1
bindAddress=127.0.0.1
listenPort={port}
haListenPort={replication}
autoCreateTopicEnable=false
autoCreateSubscriptionGroup=true
storePathRootDir={folder}/{store}
storePathCommitLog={folder}/{store}/commitlog
mappedFileSizeCommitLog={file_bytes}
mappedFileSizeConsumeQueue=600000
maxMessageSize=1500000
maxHashSlotNum=50000
maxIndexNum=100000
mappedFileSizeTimerLog=1048576
timerFlushIntervalMs=60000
diskMaxUsedSpaceRatio=99
flushConsumerOffsetInterval=500
flushDelayOffsetInterval=1000
"""
#: As docs/howto/connect-rocketmq.md recommends for large backlogs.
_LARGE_RESPONSES = """\
maxTransferCountOnMessageInMemory=512
maxTransferBytesOnMessageInMemory=1048576
maxTransferCountOnMessageInDisk=512
maxTransferBytesOnMessageInDisk=1048576
"""
_SECURED = """\
authenticationEnabled=true
authenticationProvider=org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider
authenticationMetadataProvider=org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider
initAuthenticationUser={user}
innerClientAuthenticationCredentials={inner}
"""
_TLS = """\
tls.test.mode.enable=false
tls.server.need.client.auth=none
tls.server.keyPath={folder}/key.pem
tls.server.certPath={folder}/certificate.pem
"""
_OPTIONS: Final = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:MaxDirectMemorySize=128m",
    "-Djava.net.preferIPv4Stack=true",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
)
_START_SECONDS = 90.0


@dataclass
class RocketMQ:
    """A name server and brokers with their data in a folder; the brokers can be killed and restarted.

    There is one broker, unless `ports` has one for a `second` too.

    Both ports take TLS as well as plain connections. `secured`: a client must sign as USER.
    `file_bytes`: how large the files are in which all messages lie. `responses_large`: a pull brings up to 512 messages
    or 1 MiB, and not 32 or 256 KiB, as without any setting.
    """

    folder: Path
    secured: bool = False
    file_bytes: int = _FILE_BYTES
    responses_large: bool = False
    ports: dict[str, int] = field(default_factory=lambda: {name: reserve() for name in ("names", "broker")})
    _stack: ExitStack = field(default_factory=ExitStack)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _network: OwnNetwork | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_settings()
        # its replication listens on all addresses, without a setting to change that
        self._network = self._stack.enter_context(OwnNetwork(list(self.ports.values())))
        self._run("names", "org.apache.rocketmq.namesrv.NamesrvStartup", 64)
        for which in self.ports:
            if which != "names":
                self.start(which)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():  # a clean stop takes ten seconds
            process.kill()
            process.wait()
        self._stack.close()

    @property
    def servers(self) -> str:
        """The address of the name server."""
        return f"127.0.0.1:{self.ports['names']}"

    @property
    def connection(self) -> str:
        """The URI of its connection."""
        return f"rocketmq://{self.servers}"

    @property
    def ca(self) -> Path:
        """Its CA certificate."""
        return self.folder / "ca.pem"

    def start(self, which: str = "broker") -> None:
        """Start a broker and wait until it responds; raises ToolMissing if it does not."""
        self._run(which, "org.apache.rocketmq.broker.BrokerStartup", 256)
        client = self.client()
        _wait(lambda: self._is_known(client, which), "the name server does not hear of the broker")
        client.close()

    def kill(self, which: str = "broker") -> None:
        """Kill a broker by SIGKILL; data in the operating system's cache survive."""
        self._processes[which].kill()
        self._processes[which].wait()

    def client(self) -> Client:
        """Return a client with all permissions."""
        login = (USER, PASSWORD) if self.secured else ("", "")
        return Client(ClientSettings((self.servers,), access_key=login[0], secret_key=login[1]))

    def admin(self, *words: str) -> str:
        """Return the output of RocketMQ's own tool (`mqadmin WORDS`)."""
        command = [java_program("java"), "-Xmx128m", *_OPTIONS, f"-Duser.home={self.folder}"]
        command += [f"-Drocketmq.namesrv.addr={self.servers}", "-cp", f"{fetch_rocketmq()}/*"]
        command += ["org.apache.rocketmq.tools.command.MQAdminStartup", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    def _is_known(self, client: Client, which: str) -> bool:
        """Return whether the name server knows a broker, which otherwise registers every ten seconds."""
        client.ask(_address(self, which), 25, {}, body=b"brokerPermission=6")
        return bool(client.queues(BROKERS[which]))

    def _run(self, name: str, program: str, heap: int) -> None:
        log = self.folder / f"{name}.out"
        port = self.ports[name]
        options = [f"-Xms{heap // 2}m", f"-Xmx{heap}m", *_OPTIONS, f"-Duser.home={self.folder}"]
        options += [f"-Drocketmq.home.dir={self.folder}", f"-Dtls.config.file={self.folder}/tls.properties"]
        assert self._network is not None
        command = self._network.command(java_program("java"), *options, "-cp", f"{fetch_rocketmq()}/*", program)
        with log.open("wb") as output:
            self._processes[name] = process = subprocess.Popen(
                [*command, "-c", str(self.folder / f"{name}.conf")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        end = time.monotonic() + _START_SECONDS
        while b"boot success" not in log.read_bytes():
            if process.poll() is not None or time.monotonic() > end:
                words = log.read_text(errors="replace").strip()[-500:]
                raise ToolMissing(f"RocketMQ does not start: {words or f'{port} is silent'} Use Java 17 or later.")
            time.sleep(0.05)

    def _write_settings(self) -> None:
        for number, (which, name) in enumerate(BROKERS.items()):
            own = {"name": name, "port": self.ports.get(which), "replication": 10912 + number}
            own |= {"store": "store" if which == "broker" else f"store-{which}"}
            settings = _BROKER.format(folder=self.folder, file_bytes=self.file_bytes, names=self.ports["names"], **own)
            if self.responses_large:
                settings += _LARGE_RESPONSES
            if self.secured:
                user = json.dumps({"username": USER, "password": PASSWORD})
                inner = json.dumps({"accessKey": USER, "secretKey": PASSWORD})
                settings += _SECURED.format(user=user, inner=inner)
            (self.folder / f"{which}.conf").write_text(settings)
        (self.folder / "names.conf").write_text(f"listenPort={self.ports['names']}\nbindAddress=127.0.0.1\n")
        (self.folder / "tls.properties").write_text(_TLS.format(folder=self.folder))
        ca = certificates.ca()
        self.ca.write_bytes(ca.certificate)
        own = certificates.vouched_for(ca)
        (self.folder / "certificate.pem").write_bytes(own.certificate)
        (self.folder / "key.pem").write_bytes(own.private())


def make_topics(server: RocketMQ, *topics: str, partitions: int = 1) -> None:
    """Create empty topics; recreate existing ones."""
    client = server.client()
    try:
        for topic in topics:
            _delete(server, client, topic)
            _make(server, client, topic, partitions)
    finally:
        client.close()


def set_partitions(server: RocketMQ, topic: str, partitions: int) -> None:
    """Set the number of partitions of a topic."""
    client = server.client()
    try:
        _make(server, client, topic, partitions)
    finally:
        client.close()


def _address(server: RocketMQ, which: str = "broker") -> str:
    return f"127.0.0.1:{server.ports[which]}"


def _brokers(server: RocketMQ) -> list[str]:
    return [which for which in BROKERS if which in server.ports]


def _delete(server: RocketMQ, client: Client, topic: str) -> None:
    for which in _brokers(server):
        client.ask(_address(server, which), 215, {"topic": topic})
    client.ask(server.servers, 216, {"topic": topic})


def _make(server: RocketMQ, client: Client, topic: str, partitions: int) -> None:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": partitions,
        "writeQueueNums": partitions,
        "perm": 6,
    }
    fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
    for which in _brokers(server):
        client.ask(_address(server, which), 17, fields)
    _wait(
        lambda: len(client.queues(topic)) == partitions * len(_brokers(server)), f"the topic {topic!r} does not appear"
    )


def _wait(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 30
    while True:
        try:
            if is_so():
                return
        except RemotingError:
            pass
        if time.monotonic() > end:
            raise AssertionError(what)
        time.sleep(0.01)


def begin_file(server: RocketMQ) -> None:
    """Make the broker write later messages to another file than earlier ones."""
    client = server.client()
    try:
        try:
            client.queues(_FILLER)
        except RemotingError:
            _make(server, client, _FILLER, 1)
        (partition,) = client.queues(_FILLER)
        for _ in range(2):  # each message takes more than half a file
            client.send(partition, OutgoingMessage(b"x" * (server.file_bytes * 6 // 10)))
    finally:
        client.close()


def drop_old_files(server: RocketMQ, before: datetime) -> None:
    """Delete the broker's files that were full before a time, like its retention does."""
    server.kill()
    files = sorted((server.folder / "store" / "commitlog").iterdir())
    for file, after in pairwise(files):
        begun = int.from_bytes(after.read_bytes()[56:64], "big")  # the first message's time; 0: preallocated
        if 0 < begun <= before.timestamp() * 1_000:
            file.unlink()
    server.start()


def fetch_rocketmq() -> Path:
    """Return the folder of RocketMQ's jars, filled by Maven if it is missing; raises ToolMissing."""
    require(java_program("java"), "Java, 17 or later,", "openjdk-17-jre-headless")
    require("nsenter", "nsenter", "util-linux")
    done = JARS / ".fetched"
    if not done.exists():
        fetch("RocketMQ", HERE / "rocketmq-pom.xml", JARS)
        done.touch()
    return JARS
