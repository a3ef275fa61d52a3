"""Kafka's own code as peers (`FileRecords`, `MemoryRecords`, its builder, `LogSegment.recover`): a Java process each.

Needs a JDK of version 17 or newer on the PATH and kafka-storage with what it depends on. KAFKALOG_JARS names a
directory that holds them, or that they are fetched into (else ~/.cache/kafkalog/jars): Apache Ivy, which PySpark
ships among its jars, resolves them from Maven Central. What is missing is said by `JavaUnavailableError`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from peers import Pass

KAFKA_VERSION = "4.3.1"
MIN_JAVA = 17
SOURCE = Path(__file__).with_name("SegmentPeer.java")
ENCODE_SOURCE = Path(__file__).with_name("EncodePeer.java")
RECOVER_SOURCE = Path(__file__).with_name("RecoverPeer.java")

_IVY_FILE = """\
<ivy-module version="2.0">
  <info organisation="kafkalog" module="peers"/>
  <dependencies>
    <dependency org="org.apache.kafka" name="{name}" rev="{version}" conf="*->default"/>
    <dependency org="org.slf4j" name="slf4j-nop" rev="1.7.36" conf="*->default"/>
  </dependencies>
</ivy-module>
"""
_IVY_OPTIONS = ("-confs", "default", "-types", "jar", "bundle", "-retrieve")
_IVY_PATTERN = "[artifact]-[revision].[ext]"


class JavaUnavailableError(Exception):
    """The Java peer cannot run here; the message says what is missing."""


class JavaPeer:
    """A Java process that decodes one segment; calling it makes one pass. A context manager.

    Parameters
    ----------
    how : {"file", "memory", "encode", "recover"}
        `FileRecords`, which reads batch by batch; `MemoryRecords` over the mapped file; `LogSegment.recover` of a copy,
        indexes written, which counts their entries for records; `MemoryRecordsBuilder` with the segment's records.
    path : str
        The segment.
    codec : str
        What the builder compresses with.
    warmup_seconds : float
        How long passes are made, and thrown away, until the just-in-time compiler has seen enough.
    """

    def __init__(
        self,
        how: Literal["file", "memory", "encode", "recover"],
        path: str,
        warmup_seconds: float = 2.0,
        *,
        codec: str = "none",
    ) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="kafkalog-peer-")
        if how == "recover":
            command = (*require_java(RECOVER_SOURCE, "kafka-storage"), self._scratch.name, path)
        elif how == "encode":
            command = (*require_java(ENCODE_SOURCE), codec, path)
        else:
            command = (*require_java(), how, path)
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints, text=True, bufsize=1
        )
        self.kafka_version, self.java_version = self._ask("version").split(" ", 1)
        start = time.monotonic()
        while time.monotonic() - start < warmup_seconds:
            self()

    def __call__(self) -> Pass:
        nanoseconds, n_records, value_bytes = map(int, self._ask("pass").split())
        return Pass(nanoseconds / 1e9, n_records, value_bytes)

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process.wait(timeout=30)
        self._complaints.close()
        self._scratch.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, request: str) -> str:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the Java peer has no pipes")
        self._process.stdin.write(request + "\n")
        answer = self._process.stdout.readline().strip()
        if not answer:
            self._complaints.seek(0)
            complaints = self._complaints.read().decode(errors="replace").strip()[:500]
            raise RuntimeError(f"the Java peer did not answer {request!r}: {complaints}")
        return answer


@cache
def require_java(source: Path = SOURCE, name: str = "kafka-clients") -> tuple[str, ...]:
    """The command that starts a peer, less its arguments; fetches the jars if need be.

    Raises
    ------
    JavaUnavailableError
        There is no JDK, or no jars and no way to fetch them.
    """
    java = shutil.which("java")
    if java is None or shutil.which("javac") is None:
        raise JavaUnavailableError("no JDK: `java` and `javac` are not on the PATH")
    banner = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', banner)
    if version is None or int(version[1]) < MIN_JAVA:
        raise JavaUnavailableError(f"Java {MIN_JAVA} or newer is needed, found: {banner.splitlines()[:1]}")
    # the launcher compiles the one source file in memory
    return (java, "-Xmx1g", "-cp", class_path(java, name), str(source))


def class_path(java: str, name: str) -> str:
    """The jars of a part of Kafka and of what it needs, fetched if they are not there.

    Raises
    ------
    JavaUnavailableError
        There are none and no way to fetch them.
    """
    home = Path(os.environ.get("KAFKALOG_JARS") or Path.home() / ".cache" / "kafkalog" / "jars")
    if name != "kafka-clients":
        home /= f"{name}-{KAFKA_VERSION}"
    if not list(home.glob(f"{name}-*.jar")):
        _fetch(java, name, home)
    return os.pathsep.join(map(str, sorted(home.glob("*.jar"))))


def _fetch(java: str, name: str, home: Path) -> None:
    pyspark = importlib.util.find_spec("pyspark")
    ivy = sorted(Path(pyspark.origin).parent.glob("jars/ivy-*.jar")) if pyspark and pyspark.origin else []
    if not ivy:
        raise JavaUnavailableError(
            f"no {name} jar in {home}, and no Apache Ivy to fetch it with: `pip install pyspark`, "
            "or name a directory of jars in KAFKALOG_JARS"
        )
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kafkalog-ivy-") as scratch:
        module = Path(scratch) / "ivy.xml"
        module.write_text(_IVY_FILE.format(name=name, version=KAFKA_VERSION))
        resolved = subprocess.run(
            [java, "-jar", ivy[-1], "-cache", scratch, "-ivy", module, *_IVY_OPTIONS, f"{home}/{_IVY_PATTERN}"],
            capture_output=True,
            text=True,
            check=False,
        )
    if resolved.returncode or not list(home.glob(f"{name}-*.jar")):
        raise JavaUnavailableError(f"Ivy could not fetch {name} {KAFKA_VERSION}: {resolved.stdout[-500:]}")
