"""From a topic to a table: what a user would run instead of kafkalog, in seconds.

    python asv_bench/to_a_table.py > asv_bench/TO_A_TABLE.md

A real broker receives one topic of about 1 GiB. Each way then turns its records into a table of offset, timestamp, key
and value, in a process of its own. The least seconds of all rounds count, without imports. The broker keeps running:
consumers need it, and kafkalog reads its files next to it. stdout is the table, stderr the progress.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "tests" / "golden" / "log_dir" / "p-multi-0"
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parent / "tests" / "support")]

TOPIC = "orders"
START_MS, HOURS = 1_700_000_000_000, 24
COLUMNS = ["offset", "timestamp", "key", "value"]
ROUNDS = {"fast": 3, "slow": 1}

WAYS = {
    "kafkalog": ("kafkalog.read_table", "fast"),
    "kafkalog-hour": ("kafkalog.read_table, one hour of 24", "fast"),
    "kafkalog-key": ("kafkalog.read_table, one key", "fast"),
    "parquet": ("pyarrow.parquet.read_table, after an export", "fast"),
    "kcat": ("kcat to text, read by pyarrow.csv", "fast"),
    "confluent-tuned": ("confluent-kafka, larger queues", "slow"),
    "confluent": ("confluent-kafka, defaults", "slow"),
    "aiokafka": ("aiokafka", "slow"),
    "dump": ("kafka-dump-log.sh to a text file (no table)", "slow"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=5_000_000, help="(default: %(default)s)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="kafkalog-table-") as folder:
        return compare(Path(folder), chosen.records, chosen.ways)


def compare(folder: Path, n_records: int, ways: Sequence[str]) -> int:
    """Boot a broker, fill the topic, run every way, print the table."""
    from conformance.kafka import BrokerLife

    best: dict[str, float] = {}
    with BrokerLife(folder, **{"log.retention.ms": -1}) as life:
        life.boot()
        life.client.ask("create", topics=[{"name": TOPIC, "partitions": 1, "configs": {"retention.ms": "-1"}}])
        say(f"producing {n_records:,} records")
        produce(life.broker.address, n_records)
        partition = life.log_dir / f"{TOPIC}-0"
        size = sum(path.stat().st_size for path in partition.glob("*.log"))
        setting = {"server": life.broker.address, "partition": str(partition), "n_records": n_records}
        if "parquet" in ways:
            setting["parquet"] = str(folder / "orders.parquet")
            write_parquet(partition, folder / "orders.parquet")
        for number in range(max(ROUNDS.values())):
            for way in ways:
                if number < ROUNDS[WAYS[way][1]] and (seconds := measured(way, setting)) is not None:
                    best[way] = min(best.get(way, seconds), seconds)
                    say(f"{way}: {seconds:.2f} s")
    print("\n".join(page(best, n_records, size)))
    return 0


def page(best: dict[str, float], n_records: int, size: int) -> list[str]:
    """The results as Markdown."""
    return [
        "# From a topic to a table",
        "",
        "    python asv_bench/to_a_table.py",
        "",
        f"- {n_records:,} records in one partition, {size / 2**30:.2f} GiB, not compressed",
        "- keys of 16 bytes, values of 150 to 250 bytes; files in the page cache",
        f"- {processor()}, {os.cpu_count()} processors, Linux, Python {platform.python_version()}",
        "- the least seconds of up to three rounds, each in a process of its own, without its imports",
        "",
        "| way | seconds |",
        "| --- | ---: |",
        *(f"| {WAYS[way][0]} | {seconds:.2f} |" for way, seconds in best.items()),
    ]


def measured(way: str, setting: dict[str, object]) -> float | None:
    """The seconds that one way takes in a process of its own; None if its program is not installed."""
    if way == "kcat" and shutil.which("kcat") is None:
        say("kcat is not installed: left out")
        return None
    done = subprocess.run([sys.executable, __file__, "--run", way, json.dumps(setting)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{way}: {done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def produce(server: str, n_records: int) -> None:
    """Records whose timestamps fill 24 hours."""
    import random

    from confluent_kafka import Producer

    rng = random.Random(1)
    text = rng.randbytes(2**16).hex().encode()
    producer = Producer({"bootstrap.servers": server, "linger.ms": 50, "queue.buffering.max.messages": 500_000})
    step = HOURS * 3_600_000 / n_records
    for number in range(n_records):
        at = number * 37 % (len(text) - 250)
        key = b"user-%011d" % (number * 7919 % 1_000_003)
        while True:
            try:
                value = text[at : at + 150 + number % 101]
                producer.produce(TOPIC, value, key, timestamp=START_MS + int(number * step))
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def write_parquet(partition: Path, path: Path) -> None:
    import pyarrow.parquet as pq

    import kafkalog

    pq.write_table(kafkalog.read_table(partition, columns=COLUMNS), path, compression="none", use_dictionary=False)


def kafkalog_table(**options: object) -> Callable[[dict[str, str]], int]:
    import kafkalog

    kafkalog.read_table(GOLDEN, **options)  # imports modules that the first read of a process needs
    return lambda setting: kafkalog.read_table(setting["partition"], columns=COLUMNS, **options).num_rows


def parquet() -> Callable[[dict[str, str]], int]:
    import pyarrow.parquet as pq

    return lambda setting: pq.read_table(setting["parquet"]).num_rows


def confluent(**options: object) -> Callable[[dict[str, str]], int]:
    import pyarrow as pa
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    def run(setting: dict[str, str]) -> int:
        consumer = Consumer({"bootstrap.servers": setting["server"], "group.id": "table", **options})
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        rows, n_records = [], int(setting["n_records"])
        while len(rows) < n_records:
            rows += [(m.offset(), m.timestamp()[1], m.key(), m.value()) for m in consumer.consume(10_000, 1.0)]
        return pa.table(dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))).num_rows

    return run


def aiokafka() -> Callable[[dict[str, str]], int]:
    import pyarrow as pa
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def consume(setting: dict[str, str]) -> int:
        consumer = AIOKafkaConsumer(bootstrap_servers=setting["server"])
        await consumer.start()
        where = TopicPartition(TOPIC, 0)
        consumer.assign([where])
        await consumer.seek_to_beginning(where)
        rows, n_records = [], int(setting["n_records"])
        while len(rows) < n_records:
            for found in (await consumer.getmany(timeout_ms=1000)).values():
                rows += [(m.offset, m.timestamp, m.key, m.value) for m in found]
        await consumer.stop()
        return pa.table(dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))).num_rows

    return lambda setting: asyncio.run(consume(setting))


def kcat() -> Callable[[dict[str, str]], int]:
    import pyarrow.csv as csv

    parse = csv.ParseOptions(delimiter="\t", quote_char=False)
    read = csv.ReadOptions(column_names=COLUMNS, block_size=2**24)

    def run(setting: dict[str, str]) -> int:
        options = ["-X", "queued.max.messages.kbytes=1000000", "-X", "queued.min.messages=10000000"]
        command = ["kcat", "-C", "-q", "-e", "-b", setting["server"], "-t", TOPIC, "-o", "beginning", *options]
        with subprocess.Popen([*command, "-f", r"%o\t%T\t%k\t%s\n"], stdout=subprocess.PIPE) as process:
            return csv.read_csv(process.stdout, read, parse).num_rows

    return run


def dump() -> Callable[[dict[str, str]], int]:
    from peers.dump_tool import command

    def run(setting: dict[str, str]) -> int:
        files = ",".join(map(str, sorted(Path(setting["partition"]).glob("*.log"))))
        with tempfile.TemporaryFile() as out:
            subprocess.run([*command(), "--print-data-log", "--files", files], stdout=out, check=True)
            return int(setting["n_records"])

    return run


def prepared(way: str) -> Callable[[dict[str, str]], int]:
    """Import what a way needs; the function that is timed."""
    if way == "kafkalog-hour":
        first = START_MS + 12 * 3_600_000
        return kafkalog_table(start_timestamp=first, end_timestamp=first + 3_600_000)
    if way == "kafkalog-key":
        return kafkalog_table(filters=[("key", "==", b"user-%011d" % 7919)])
    if way == "confluent-tuned":
        return confluent(**{"queued.max.messages.kbytes": 1_000_000, "queued.min.messages": 10_000_000})
    functions = {"kafkalog": kafkalog_table, "parquet": parquet, "confluent": confluent, "aiokafka": aiokafka}
    return {**functions, "kcat": kcat, "dump": dump}[way]()


def run_way(way: str, setting: dict[str, str]) -> int:
    """Run one way in this process, and print its seconds."""
    work = prepared(way)
    start = time.perf_counter()
    n_rows = work(setting)
    seconds = time.perf_counter() - start
    if way not in ("kafkalog-hour", "kafkalog-key") and n_rows != int(setting["n_records"]):
        raise RuntimeError(f"{n_rows} rows instead of {setting['n_records']}")
    print(seconds)
    return 0


def processor() -> str:
    """The name of the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "a processor")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        sys.exit(run_way(sys.argv[2], json.loads(sys.argv[3])))
    sys.exit(main())
