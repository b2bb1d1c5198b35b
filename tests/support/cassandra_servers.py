"""Real Cassandra nodes on loopback, from the jars of Maven Central; each is a JVM."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

VERSION = "5.0.6"
START_S = 120.0
PORT = 9942
STORAGE_PORT = 7950
JMX_PORT = 7959
# What Cassandra's own conf/jvm17-server.options opens for it.
EXPORTS = (
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/java.lang.ref",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
    "jdk.compiler/com.sun.tools.javac.file",
    "jdk.attach/sun.tools.attach",
)
OPENS = (
    *(
        "java.base/java.lang",
        "java.base/java.lang.module",
        "java.base/java.lang.reflect",
    ),
    *("java.base/java.io", "java.base/java.net", "java.base/java.util"),
    *("java.base/java.util.concurrent", "java.base/java.util.concurrent.atomic"),
    *("java.base/java.nio", "java.base/sun.nio.ch", "java.base/jdk.internal.loader"),
    *("java.base/jdk.internal.ref", "java.base/jdk.internal.reflect"),
    *("java.base/jdk.internal.math", "java.base/jdk.internal.module"),
    "java.base/jdk.internal.util.jar",
    "jdk.management/com.sun.management.internal",
    "jdk.compiler/com.sun.tools.javac",
)
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>monarch</groupId><artifactId>jars</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.cassandra</groupId>
<artifactId>cassandra-all</artifactId><version>{VERSION}</version></dependency>
</dependencies></project>
"""
YAML = """
cluster_name: test
num_tokens: 16
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
commitlog_sync: periodic
commitlog_sync_period: 10s
data_file_directories: [{folder}/data]
commitlog_directory: {folder}/commitlog
hints_directory: {folder}/hints
saved_caches_directory: {folder}/saved
cdc_raw_directory: {folder}/cdc
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: "{seed}:{storage}"}}]
listen_address: {host}
rpc_address: {host}
native_transport_port: {port}
storage_port: {storage}
endpoint_snitch: SimpleSnitch
auto_bootstrap: {bootstraps}
authenticator: {authenticator}
memtable_heap_space: 64MiB
memtable_offheap_space: 64MiB
key_cache_size: 8MiB
concurrent_reads: 8
concurrent_writes: 8
"""


def jars() -> Path:
    """The folder of the jars, which are fetched once for each user."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(cache) / "monarch-tests" / f"cassandra-{VERSION}"
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pom.xml").write_text(POM)
        subprocess.run(
            [
                *("mvn", "-q", "-B", "dependency:copy-dependencies"),
                *("-DoutputDirectory=lib", "-DincludeScope=runtime"),
            ],
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=300,
        )
        (folder / "complete").touch()
    return folder / "lib"


@dataclass
class Cassandra:
    """One node.

    Args:
        has_passwords: users are `cassandra` with the same password.
    """

    folder: Path
    host: str = "127.0.0.1"
    seed: str = "127.0.0.1"
    has_passwords: bool = False
    heap_mib: int = 768
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it, with its former content."""
        self.folder.mkdir(exist_ok=True)
        names = "PasswordAuthenticator", "AllowAllAuthenticator"
        yaml = self.folder / "cassandra.yaml"
        yaml.write_text(
            YAML.format(
                folder=self.folder,
                host=self.host,
                seed=self.seed,
                port=PORT,
                storage=STORAGE_PORT,
                bootstraps="false",
                authenticator=names[not self.has_passwords],
            )
        )
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command(yaml), stdout=log, stderr=log, cwd=self.folder
            )
        deadline = time.monotonic() + START_S
        while not self.answers():
            said = (self.folder / "log").read_text(errors="replace")[-2000:]
            assert self.process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.2)

    def answers(self) -> bool:
        """Whether it takes connections."""
        try:
            socket.create_connection((self.host, PORT), 1).close()
        except OSError:
            return False
        return True

    def end(self, blow: signal.Signals = signal.SIGKILL) -> None:
        """Ends it."""
        if self.process is not None:
            self.process.send_signal(blow)
            self.process.wait(30)
            self.process = None

    def _jmx_port(self) -> int:
        """One for each host: all are on the same address."""
        *_, third, last = map(int, self.host.split("."))
        return JMX_PORT + 10 * third + last

    def _command(self, yaml: Path) -> list[str]:
        lib = jars()
        (jamm,) = lib.glob("jamm-*.jar")
        given = {
            "cassandra.config": yaml.as_uri(),
            "cassandra.storagedir": self.folder,
            "cassandra-foreground": "yes",
            "cassandra.skip_wait_for_gossip_to_settle": 0,
            "cassandra.ring_delay_ms": 1000,
            "cassandra.superuser_setup_delay_ms": 0,
            "cassandra.jmx.local.port": self._jmx_port(),
            "io.netty.tryReflectionSetAccessible": "true",
            "jdk.attach.allowAttachSelf": "true",
            "java.io.tmpdir": self.folder,
        }
        words = ["java", f"-javaagent:{jamm}", "-XX:+UseSerialGC", "-Xss512k"]
        words += [f"-Xms{self.heap_mib}m", f"-Xmx{self.heap_mib}m"]
        words += ["-XX:MaxDirectMemorySize=256m", "-XX:TieredStopAtLevel=1"]
        words += [f"--add-exports={one}=ALL-UNNAMED" for one in EXPORTS]
        words += [f"--add-opens={one}=ALL-UNNAMED" for one in OPENS]
        words += [f"-D{name}={value}" for name, value in given.items()]
        classes = f"{self.folder}:{lib}/*"
        return [*words, "-cp", classes, "org.apache.cassandra.service.CassandraDaemon"]


@contextmanager
def cassandra_node(folder: Path, *, has_passwords: bool = False) -> Iterator[Cassandra]:
    """One node."""
    node = Cassandra(folder, has_passwords=has_passwords)
    try:
        node.start()
        yield node
    finally:
        node.end()
