"""Datasets: DuckDB, Polars and DataFusion get from one what they get from the same records in a table of their own.

A condition that is always or never true is refused by DataFusion itself where it is part of another, for any dataset.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import pickle
import random
import shutil
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

import builder
import duckdb
import golden_sets
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from effort import THOROUGH
from needs import missing

import kafkalog
from kafkalog import format as kf
from kafkalog.column_names import ALL_COLUMNS

COLUMNS = [name for name in ALL_COLUMNS if name != "headers"]
SOURCES = {
    "k44": ["p-compact-0", "p-multi-0", "p-multi-1", "p-txn-0"],
    "k28": ["p-v0v1v2-mixed-0", "p-v0-nulls-0"],
}
ENGINES = ("duckdb", "polars", "datafusion")
BERLIN = timezone(timedelta(hours=1))


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log dir with a compacted topic, transactions, records without timestamps, null keys, and an empty partition."""
    path = tmp_path_factory.mktemp("logs")
    for broker, names in SOURCES.items():
        for name in names:
            shutil.copytree(golden_sets.unpacked(broker) / name, path / name)
    (path / "p-empty-0").mkdir()
    (path / "p-empty-0" / kf.segment_file_name(0)).touch()
    return path


@pytest.fixture(scope="module")
def table(log):
    return kafkalog.read_table(log, columns=COLUMNS)


class Condition(NamedTuple):
    """A condition in the words of each engine."""

    sql: str
    polars: pl.Expr
    kind: str


def comparison(rng, table):
    """A condition on one column."""
    name = rng.choice(["offset", "partition", "timestamp", "topic", "key", "value", "leader_epoch", "producer_id"])
    name = rng.choice([name, name, name, "compression", "is_transactional", "timestamp_type", "segment"])
    column, quoted = pl.col(name), f'"{name}"'
    match rng.randrange(7):
        case 0:
            negated = rng.random() < 0.5
            sql = f"{quoted} is {'not ' if negated else ''}null"
            return Condition(sql, column.is_not_null() if negated else column.is_null(), "null")
        case 1 if name in ("offset", "partition"):
            n = rng.randrange(0, 200)
            return Condition(f'{quoted} + "partition" > {n}', column + pl.col("partition") > n, "sum")
        case 2 | 3 if name in ("offset", "partition", "topic", "key", "leader_epoch", "timestamp_type"):
            values = [value(rng, table, name) for _ in range(rng.randrange(1, 5))]
            negated = rng.random() < 0.3
            sql = f"{quoted} {'not ' if negated else ''}in ({', '.join(map(quote, values))})"
            found = column.is_in(pl.Series(values, dtype=pl.Binary) if name == "key" else values)
            return Condition(sql, ~found if negated else found, "in")
        case 4 if name in ("topic", "segment"):
            prefix = value(rng, table, name)[: rng.randrange(1, 6)]
            return Condition(f"{quoted} like '{prefix}%'", column.str.starts_with(prefix), "prefix")
    if name == "is_transactional":
        return Condition(quoted, column, "flag")
    operation = rng.choice(["=", "<>", "<", "<=", ">", ">="])
    other = value(rng, table, name)
    compare = {
        "=": lambda one: one == other,
        "<>": lambda one: one != other,
        "<": lambda one: one < other,
        "<=": lambda one: one <= other,
        ">": lambda one: one > other,
        ">=": lambda one: one >= other,
    }
    return Condition(f"{quoted} {operation} {quote(other)}", compare[operation](column), "compare")


def value(rng, table, name):
    """A value of a column, or one near it."""
    found = table[name][rng.randrange(table.num_rows)]
    if name == "timestamp":
        stamp = datetime.fromtimestamp((found.value or 1_700_000_000_000) / 1000, rng.choice([UTC, BERLIN]))
        return stamp + timedelta(microseconds=rng.choice([0, 0, 1, 999, 10**6]))
    if name in ("key", "value"):
        data = found.as_py() or b""
        return data[: rng.randrange(0, 20)] if rng.random() < 0.3 else data[:200]
    if pa.types.is_integer(found.type):
        return min(found.as_py() + rng.choice([0, 0, -1, 1, 40]), 100_000 if name != "timestamp_type" else 100)
    return found.as_py()


def quote(value):
    """A value as a literal that DuckDB and DataFusion both read."""
    if isinstance(value, datetime):
        return f"timestamptz '{value.isoformat(sep=' ', timespec='microseconds')}'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


def predicate(rng, table, depth=2):
    if depth == 0 or rng.random() < 0.25:
        return comparison(rng, table)
    one, other = predicate(rng, table, depth - 1), predicate(rng, table, depth - 1)
    kind = f"{one.kind} {other.kind}"
    match rng.choice(["and", "and", "or", "not"]):
        case "and":
            return Condition(f"({one.sql}) and ({other.sql})", one.polars & other.polars, kind)
        case "or":
            return Condition(f"({one.sql}) or ({other.sql})", one.polars | other.polars, kind)
    return Condition(f"not ({one.sql})", ~one.polars, one.kind)


class Engines:
    """The engines, each with the dataset (`log`) and with a table of the same records (`copy`)."""

    def __init__(self, log, table):
        self.dataset = kafkalog.dataset(log, columns=COLUMNS, threads=1)
        self.duck = duckdb.connect()
        self.duck.execute("set threads = 1")
        self.duck.register("log", self.dataset)
        self.duck.register("arrow_table", table)
        self.duck.execute("create table copy as select * from arrow_table")
        self.polars = {"log": pl.scan_pyarrow_dataset(self.dataset), "copy": pl.DataFrame(table).lazy()}
        self.fusion = None

    def start_fusion(self, table):
        try:
            import datafusion
        except ImportError:
            missing("datafusion is not installed")
        self.fusion = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
        self.fusion.register_dataset("log", self.dataset)
        self.fusion.register_record_batches("copy", [table.to_batches()])
        self.fusion.register_dataset("arrow", ds.dataset(table))

    def run(self, engine, source, names, where):
        """The columns of these names, ordered by them all; without names the number of rows as `n`."""
        if engine == "polars":
            rows = self.polars[source].filter(where.polars)
            found = (rows.select(names) if names else rows.select(n=pl.len())).collect().to_arrow()
        else:
            chosen = ", ".join(f'"{name}"' for name in names) or "count(*) as n"
            sql = f"select {chosen} from {source} where {where.sql}"
            if engine == "duckdb":
                found = self.duck.sql(sql).to_arrow_table()
            else:
                batches = self.fusion.sql(sql.replace("timestamptz '", "timestamp '")).collect()
                found = pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in names})
        return found.sort_by([(name, "ascending") for name in names]) if names else found


@pytest.fixture(scope="module")
def engines(log, table):
    return Engines(log, table)


def check(engines, engine, table, n, seed):
    """Compare `n` random queries; returns how many of them had a row."""
    rng, found = random.Random(seed), 0
    for _ in range(n):
        where = predicate(rng, table)
        # any columns in any order; none is a count
        names = rng.sample(COLUMNS, rng.randrange(7))
        try:
            ours, theirs = (engines.run(engine, source, names, where) for source in ("log", "copy"))
        except Exception as error:
            # what DataFusion makes of a constant in a condition is none of Arrow's expressions, for any dataset
            if "BooleanScalar" not in str(error):
                raise AssertionError(engine, where.sql) from error
            with pytest.raises(Exception, match="BooleanScalar"):
                engines.run(engine, "arrow", names, where)
            continue
        assert ours.num_rows == theirs.num_rows, (engine, names, where.sql)
        assert ours.num_rows == 0 or ours.equals(theirs.cast(ours.schema)), (engine, names, where.sql)
        found += ours["n"][0].as_py() > 0 if not names else ours.num_rows > 0
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_random_queries_find_in_a_dataset_what_they_find_in_a_table(engines, engine, table):
    if engine == "datafusion":
        engines.start_fusion(table)
    n_queries = 60 if THOROUGH else 8
    assert check(engines, engine, table, n_queries, seed=1) > n_queries // 2


def test_datafusion_sorts_and_joins_what_is_all_ruled_out(engines, table):
    engines.start_fusion(table)
    for sql in (
        "select topic from log where topic = 'none' order by \"offset\" limit 3",
        'select count(*) from log where topic = \'none\' and "offset" in (select "offset" from copy)',
    ):
        found = engines.fusion.sql(sql).to_pydict()
        assert found in ({"topic": []}, {"count(*)": [0]}), sql


HOUR = 3_600_000
START = 1_700_000_000_000


@pytest.fixture(scope="module")
def hours(tmp_path_factory):
    """Two topics of 48 hours in three segments each, with indexes."""
    path = tmp_path_factory.mktemp("hours")
    for topic in ("orders-0", "clicks-0"):
        (path / topic).mkdir()
        for segment in range(3):
            batches = [
                builder.batch_v2(
                    [builder.record_v2(i, i * 1000, b"k%d" % i, b"v" * 300) for i in range(10)],
                    base_offset=(segment * 400 + at) * 10,
                    base_timestamp=START + (segment * 400 + at) * 144_000,
                    max_timestamp=START + (segment * 400 + at) * 144_000 + 9000,
                )
                for at in range(400)
            ]
            (path / topic / kf.segment_file_name(segment * 4000)).write_bytes(b"".join(batches))
    kafkalog.reindex(path, in_place=True)
    return path


def bytes_read(scan, read):
    counts = []
    scan.progress = counts.append
    read()
    return sum(counts)


def test_one_topic_and_one_hour_reads_no_more_than_the_same_filters(hours):
    first, last = (datetime.fromtimestamp((START + n * HOUR) / 1000, UTC) for n in (30, 31))
    ours = kafkalog.scan(
        hours, filters=[("topic", "==", "orders"), ("timestamp", ">=", first), ("timestamp", "<", last)]
    )
    n_rows = ours.count_rows()
    n_bytes = bytes_read(ours, ours.count_rows)
    assert 0 < n_bytes <= sum(path.stat().st_size for path in hours.rglob("*.log")) / 2
    during = f"timestamp >= {quote(first)} and timestamp < {quote(last)}"
    sql = f"select \"offset\" from hours_log where topic = 'orders' and {during}"
    scan = kafkalog.scan(hours)
    log = scan.to_dataset()
    where = (pl.col("topic") == "orders") & (pl.col("timestamp") >= first) & (pl.col("timestamp") < last)
    queries = {
        "duckdb": lambda: len(con.sql(sql).fetchall()),
        "polars": lambda: pl.scan_pyarrow_dataset(log).filter(where).select("offset").collect().height,
    }
    con = duckdb.connect()
    con.register("hours_log", log)
    if importlib.util.find_spec("datafusion") is not None:
        import datafusion

        context = datafusion.SessionContext()
        context.register_dataset("hours_log", log)
        queries["datafusion"] = lambda: context.sql(sql).to_arrow_table().num_rows
    for engine, query in queries.items():
        assert query() == n_rows, engine
        assert 0 < bytes_read(scan, query) <= 1.05 * n_bytes, engine


def test_a_dataset_has_what_engines_call(log, table):
    dataset = kafkalog.dataset(log, columns=COLUMNS)
    field = pc.field
    assert isinstance(dataset, ds.Dataset)
    assert dataset.schema == table.schema
    assert dataset.to_table().equals(table)
    wanted = (field("offset") > 10) & (field("key") == b"k1")
    assert dataset.count_rows() == table.num_rows
    assert dataset.count_rows(filter=wanted) == table.filter(wanted).num_rows
    assert dataset.filter(wanted).to_table(["key"]).equals(table.filter(wanted).select(["key"]))
    assert dataset.head(7, columns=["offset", "topic"]).equals(table.select(["offset", "topic"])[:7])
    nothing = dataset.to_table(columns=[], filter=wanted)
    assert (nothing.num_rows, nothing.num_columns) == (table.filter(wanted).num_rows, 0)
    computed = dataset.to_table(columns={"next": field("offset") + 1, "topic": field("topic")})
    assert computed["next"].equals(pc.add(table["offset"], 1))
    assert max(batch.num_rows for batch in dataset.to_batches(columns=["value"], batch_size=13)) == 13
    assert pickle.loads(pickle.dumps(dataset)).count_rows() == table.num_rows
    assert dataset.to_table(filter=pa.scalar(False)).num_rows == 0  # as DataFusion says that nothing is wanted
    assert sum(fragment.count_rows() for fragment in dataset.get_fragments(filter=pa.scalar(False))) == 0
    fragments = list(dataset.get_fragments(filter=field("topic") == "p-txn"))
    rows = [fragment.to_table(columns=["topic"]) for fragment in fragments]
    assert set(pa.concat_tables(rows)["topic"].to_pylist()) == {"p-txn"}
    assert sum(fragment.count_rows() for fragment in dataset.get_fragments()) == table.num_rows


def test_what_a_dataset_cannot_do_is_an_error_and_no_crash(log, tmp_path):
    dataset = kafkalog.dataset(log)
    for call in (
        lambda: dataset.take([0]),
        lambda: dataset.sort_by("offset"),
        lambda: dataset.join(dataset, "offset"),
        lambda: dataset.replace_schema(dataset.schema),
        lambda: ds.dataset([dataset, dataset]).to_table(),
    ):
        with pytest.raises(NotImplementedError):
            call()
    with pytest.raises(FileNotFoundError):
        ds.Scanner.from_dataset(dataset).to_table()
    with pytest.raises(AttributeError):
        _ = dataset.format
    with pytest.raises((AttributeError, ValueError), match="format"):  # pyarrow's own, if it takes the Arrow stream
        ds.write_dataset(dataset, tmp_path / "out")
    with pytest.raises(ValueError):
        dataset.to_table(columns=["nope"])
    with pytest.raises(ValueError):
        dataset.to_table(filter=pc.field("nope") == 1)
    public = {name for name in dir(ds.FileSystemDataset) if not name.startswith("_")}
    kept = {"schema", "partition_expression", "partitioning", "filesystem", "from_paths"}
    assert public - set(vars(type(dataset))) == kept  # what is inherited would be about the file that does not exist


def test_a_dataset_of_a_scan_with_a_limit_filters_what_the_limit_left(log):
    scan = kafkalog.scan(log, limit=100)
    later = pc.field("offset") > sorted(scan.to_table()["offset"].to_pylist())[40]
    left = scan.to_table().filter(later)
    assert 0 < left.num_rows < 100
    dataset = scan.to_dataset()
    assert dataset.count_rows(filter=later) == left.num_rows
    assert dataset.to_table(columns=["key"], filter=later).equals(left.select(["key"]))
    assert [fragment.count_rows() for fragment in dataset.get_fragments()] == [100]
    with pytest.raises(ValueError):
        scan.narrowed(None, later)


def test_damage_is_told_through_an_engine(hours, tmp_path):
    shutil.copytree(hours / "orders-0", tmp_path / "orders-0")
    path = tmp_path / "orders-0" / kf.segment_file_name(0)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    damaged = kafkalog.dataset(tmp_path)
    with pytest.raises(kafkalog.CorruptionError, match=path.name):
        damaged.to_table()
    with pytest.raises(Exception, match="checksum"):
        duckdb.sql("select count(*) from damaged").fetchall()


@pytest.mark.parametrize(
    "library",
    ["pyarrow", *(pytest.param(name, marks=pytest.mark.slow) for name in ("deltalake", "pyiceberg", "lance"))],
)
def test_lakes_take_the_records(library, hours, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))  # where a process that is spawned finds this module
    wanted = (pc.field("topic") == "orders") & (pc.field("offset") < 900)
    names = ["topic", "partition", "offset", "timestamp", "key"]
    scan = kafkalog.scan(hours, columns=names, filters=wanted)
    written = str(tmp_path / "table")
    if library == "pyarrow":
        ds.write_dataset(kafkalog.dataset(hours, columns=names).filter(wanted), written, format="parquet")
        found = ds.dataset(written).to_table()
    elif library == "deltalake":
        deltalake = pytest.importorskip("deltalake", reason="not tested here: deltalake is not installed")
        deltalake.write_deltalake(written, scan)
        found = deltalake.DeltaTable(written).to_pyarrow_table()
    elif library == "lance":
        if importlib.util.find_spec("lance") is None:
            pytest.skip("not tested here: pylance is not installed")
        # in a process of its own: once imported, it warns of every fork that other tests make
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found = pool.apply(through_lance, (scan, written))
    else:
        catalogs = pytest.importorskip("pyiceberg.catalog.sql", reason="not tested here: pyiceberg is not installed")
        warehouse = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
        catalog = catalogs.SqlCatalog("logs", **warehouse)
        catalog.create_namespace("kafka")
        records = scan.to_table().cast(iceberg_schema(scan.schema))
        made = catalog.create_table("kafka.orders", schema=records.schema)
        made.append(records)
        found = made.scan().to_arrow()
    assert found.num_rows == 900
    assert sorted(found["offset"].to_pylist()) == list(range(900))


def through_lance(scan, path):
    import lance

    lance.write_dataset(scan.to_reader(), path)
    return lance.dataset(path).to_table()


def iceberg_schema(schema):
    """Iceberg's timestamps are of microseconds."""
    at = schema.get_field_index("timestamp")
    return schema.set(at, pa.field("timestamp", pa.timestamp("us", "UTC")))
