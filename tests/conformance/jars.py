"""Kafka's jars, from a cache or from Maven Central by way of Apache Ivy, which PySpark ships.

The first time takes a minute or two; after that they are in the cache directory (`KAFKALOG_JARS`, default
``~/.cache/kafkalog/jars``).
"""

import contextlib
import fcntl
import functools
import os
import re
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from needs import by_todays_clock, java_program, missing

KAFKA_VERSION = "4.3.1"
OLD_KAFKA_VERSION = "2.8.2"
"""The last line of Kafka that writes message formats v0 and v1."""

_ATTEMPTS = 3
_PAUSE_SECONDS = 5.0
_ATTEMPT_SECONDS = 240
_STARTED = time.time()

_IVY_MODULE = """<ivy-module version="2.0"><info organisation="kafkalog" module="conformance"/><dependencies>
{dependencies}</dependencies></ivy-module>
"""
_IVY_DEPENDENCY = '<dependency org="{}" name="{}" rev="{}" conf="*->default"/>\n'
# its remote storage for tests, which is a directory
_STORAGE_MODULE = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="kafkalog" module="storage"/><dependencies>
<dependency org="org.apache.kafka" name="kafka-storage" rev="{KAFKA_VERSION}" conf="*->default" transitive="false">
<artifact name="kafka-storage" type="jar" ext="jar" m:classifier="test"/></dependency></dependencies></ivy-module>
"""
_PARTS = {KAFKA_VERSION: ("kafka_2.13", "kafka-tools"), OLD_KAFKA_VERSION: ("kafka_2.13",)}
# the newest that Maven Central has, with the newest release of the part that it leaves to another artifact
CONNECTOR_VERSION = "4.2.0"
_CONNECTOR_MODULE = f"""<ivy-module version="2.0"><info organisation="kafkalog" module="connector"/><dependencies>
<dependency org="org.apache.spark" name="spark-sql-kafka-0-10_2.13" rev="{CONNECTOR_VERSION}" conf="*->default"/>
<exclude org="com.github.luben"/><exclude org="com.google.code.findbugs"/><exclude org="org.apache.hadoop"/>
<exclude org="org.lz4"/><exclude org="at.yawk.lz4"/><exclude org="org.scala-lang"/>
<exclude org="org.scala-lang.modules"/><exclude org="org.slf4j"/><exclude org="org.xerial.snappy"/>
<exclude org="org.apache.spark" module="spark-tags_2.13"/>
<override org="org.apache.spark" module="spark-token-provider-kafka-0-10_2.13" rev="4.0.0"/>
</dependencies></ivy-module>
"""

# what Spark 4.1 reads tables with: the newest for which there are jars of both formats
_LAKE_PARTS = (
    ("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0"),
    ("io.delta", "delta-spark_4.1_2.13", "4.4.0"),
    ("io.delta", "delta-storage", "4.4.0"),
    ("org.xerial", "sqlite-jdbc", "3.47.1.0"),
)


@functools.cache
def java():
    """A JDK's `java`, 17 or later: it has to compile `Client.java`."""
    program = java_program()
    listed = subprocess.run([program, "--list-modules"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"^java\.base@(\d+)", listed, re.MULTILINE)
    if version is None or int(version[1]) < 17:
        missing(f"{program} is older than Java 17")
    if "jdk.compiler@" not in listed:
        missing(f"{program} belongs to a JRE; a JDK is needed")
    return program


def class_path(java, version=KAFKA_VERSION):
    """Kafka's broker and tools."""
    names = _PARTS.get(version, ("kafka_2.13",))
    parts = [("org.apache.kafka", part, version) for part in names] + [("org.slf4j", "slf4j-simple", "1.7.36")]
    module = _IVY_MODULE.format(dependencies="".join(_IVY_DEPENDENCY.format(*part) for part in parts))
    return fetch(java, f"kafka-{version}", module)


def mirror_maker(java):
    """MirrorMaker 2 with the Connect runtime that it needs."""
    parts = [
        ("org.apache.kafka", "connect-mirror", KAFKA_VERSION),
        ("org.apache.kafka", "connect-runtime", KAFKA_VERSION),
    ]
    parts.append(("org.slf4j", "slf4j-simple", "1.7.36"))
    module = _IVY_MODULE.format(dependencies="".join(_IVY_DEPENDENCY.format(*part) for part in parts))
    return fetch(java, f"mirror-maker-{KAFKA_VERSION}", module)


def tiered_storage(java):
    """Kafka's own LocalTieredStorage, for the class path of a broker."""
    return fetch(java, f"kafka-storage-test-{KAFKA_VERSION}", _STORAGE_MODULE)


def spark_connector(java):
    """Spark's own Kafka source with the client that it needs, beside what PySpark has."""
    return fetch(java, f"spark-sql-kafka-{CONNECTOR_VERSION}", _CONNECTOR_MODULE)


def lake_jars(java):
    """What Spark 4.1 needs for tables of Delta and Iceberg, and for a catalog in SQLite."""
    parts = "".join(_IVY_DEPENDENCY.format(*part).replace("default", "master") for part in _LAKE_PARTS)
    return fetch(java, "lakes-of-spark-4.1", _IVY_MODULE.format(dependencies=parts))


def fetch_all():
    """Fetch all that is not there yet; what cannot be fetched is missed by the tests that ask for it."""
    quietly = contextlib.suppress(pytest.skip.Exception, pytest.fail.Exception)
    with quietly:
        program = java()
        for version in _PARTS:
            with quietly:
                class_path(program, version)
        for fetched in (spark_connector, tiered_storage):
            with quietly:
                fetched(program)


def cache_directory():
    """Where jars are, and what was made of them."""
    return Path(os.environ.get("KAFKALOG_JARS") or Path.home() / ".cache" / "kafkalog" / "jars").absolute()


def fetch(java, name, ivy_module):
    """A class path, of which all files are there.

    One process at a time fetches into a cache. Where it failed in vain, those that waited for it don't try again.
    """
    cache = cache_directory()
    kept, failure = cache / f"{name}.classpath", cache / f"{name}.failure"
    if jars := _complete(kept):
        return jars
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if jars := _complete(kept):
            return jars
        if failure.exists() and failure.stat().st_mtime >= _STARTED:
            missing(failure.read_text())
        why, jars = "", ""
        for attempt in range(_ATTEMPTS):
            time.sleep(attempt * _PAUSE_SECONDS)
            why = _run_ivy(java, cache, name, ivy_module, kept)
            if jars := _complete(kept):
                break
        if not jars:
            failure.write_text(why)
            missing(why)
        failure.unlink(missing_ok=True)
        return jars


def _complete(kept):
    """The class path of a file, if all that it names is there."""
    jars = kept.read_text().strip() if kept.is_file() else ""
    return jars if all(Path(jar).is_file() for jar in jars.split(os.pathsep)) else ""


def _run_ivy(java, cache, name, ivy_module, kept):
    """Make the file of a class path; returns what went wrong otherwise."""
    spark = find_spec("pyspark")
    folders = spark.submodule_search_locations if spark else None
    ivy = sorted(Path(folders[0], "jars").glob("ivy-*.jar")) if folders else []
    if not ivy:
        return "pyspark is not installed, whose Ivy jar fetches Kafka's jars"
    module, fresh = cache / f"{name}.xml", cache / f"{name}.{os.getpid()}"
    module.write_text(ivy_module)
    command = [java, "-jar", str(ivy[-1]), "-cache", str(cache), "-ivy", str(module), "-confs", "default"]
    try:
        done = subprocess.run(
            [*command, "-cachepath", str(fresh)],
            capture_output=True,
            text=True,
            timeout=_ATTEMPT_SECONDS,
            check=False,
            env=by_todays_clock(),
        )
    except subprocess.TimeoutExpired:
        return f"fetching the jars of {name} took longer than {_ATTEMPT_SECONDS} s"
    if done.returncode or not fresh.is_file() or "UNRESOLVED" in done.stdout:
        fresh.unlink(missing_ok=True)
        return f"Ivy could not fetch the jars of {name}:\n" + (done.stdout + done.stderr)[-2000:]
    fresh.replace(kept)
    return ""
