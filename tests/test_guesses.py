"""What a newcomer would call on the first day, written down before the names were looked up.

Each guess works, or ends in an error that names the right call (the word after ``->``).
"""

import datetime
import inspect
import re
import shlex
import traceback

import numpy as np
import pyarrow as pa
import pytest
from effort import THOROUGH

import kafkalog
import kafkalog.spark
from kafkalog.cli import main
from kafkalog.cli.app import _that_works, _translated, build_parser
from kafkalog.cli.parser import Misuse
from kafkalog.cli.typed import shown
from kafkalog.words import commands

PYTHON = """
kafkalog.scan(d, topic="orders").count_rows() == 5 or 1 / 0
kafkalog.scan(d, topic="orders", topics="orders") -> topic is topics, which is there twice
kafkalog.read_tabel(d) -> read_table
kafkalog.scan(d, start_ofset=3) -> start_offset
kafkalog.scan(d, columns=["offset", "vaule"]) -> value
kafkalog.scan(d, start_time="2024-01-01T00:00:00Z", until="2034-01-01T00:00:00Z").count_rows() == 15 or 1 / 0
kafkalog.scan(d, filter="offset >= 1").count_rows() == 12 or 1 / 0
kafkalog.scan(d, where="offset >= 1") -> filters
kafkalog.to_pandas(d) -> read_pandas
kafkalog.open(d)["orders-0"]
kafkalog.rebuild_indexes(p) -> reindex
kafkalog.read_table(d, latest=True) -> latest must be 'key', not True
kafkalog.diff(d, d) -> orders-0
list(kafkalog.open(p, start=3, end=5)) -> scan
kafkalog.open(d)["orders"][0].log_end_offset == 5 or 1 / 0
kafkalog.reindex(p) -> dry_run
kafkalog.KafkaLogError -> KafkalogError
kafkalog.errors.CorruptRecordError -> CorruptionError
kafkalog.consumer_groups(d) -> groups
bool(kafkalog.open(p) and kafkalog.open(s) and kafkalog.open(d) and kafkalog.scan(p)) or 1 / 0
"orders" in kafkalog.open(d) or 1 / 0
("orders", 0) in kafkalog.open(d) or 1 / 0
"ordres" in kafkalog.open(d) and 1 / 0
kafkalog.errors.ChecksumError -> KafkalogError is the base
kafkalog.open(file) -> .log' by its name
pa.table(kafkalog.open(p)).num_rows == 5 or 1 / 0
pa.table(kafkalog.open(d)).num_rows == 15 or 1 / 0
"""
PYTHON_OF_OTHER_TOOLS = """
# pandas, Polars, pyarrow, DuckDB
kafkalog.read_table(d, filter="key == k").num_rows == 15 or 1 / 0
kafkalog.read_table(d, topic="orders", partition=0).num_rows == 5 or 1 / 0
kafkalog.read_table(d, nrows=3).num_rows == 3 or 1 / 0
kafkalog.read_table(d, n=3) -> limit=
kafkalog.read_table(d, usecols=["key"]).column_names == ["key"] or 1 / 0
kafkalog.read_table(d, skiprows=3) -> start_offset=
kafkalog.read_table(d, filesystem=None) -> storage_options=
kafkalog.read_pandas(d, chunksize=3) -> (batch.to_pandas() for batch in kafkalog.scan(path, batch_size=3).to_batches())
kafkalog.open(d).to_pandas(chunksize=3) -> (batch.to_pandas() for batch in kafkalog.scan(path, batch_size=3)
kafkalog.read_table(d, value_format="protobuf", message_type=int) -> {"format": "protobuf", "schema": "order.proto",
kafkalog.scan(d).to_numpy(["offset", "key"]) -> use kafkalog.scan(path, columns=['offset', 'key'])
kafkalog.read_table(d, ["offset"]) -> use columns=['offset']
kafkalog.read_table(d, "orders") -> read_table takes path by position; use topics='orders'
kafkalog.read_table(d, "orders", partition=0) -> use topics='orders'
kafkalog.open(d)["orders", 0].to_numpy("offset") -> to_numpy takes nothing by position; use columns=['offset']
kafkalog.read -> kafkalog.read_table(path, topics="orders")
kafkalog.read_table(d, decode="avro") -> such as decode={"value": "avro"}
kafkalog.trim(p, "there", before_offset=3) -> use output='there'
kafkalog.scan(d, foo=1) -> there are topics, partitions, start_offset
kafkalog.read_table(d, dtype=None) -> decode=
kafkalog.read_table(d, value_format="utf8", key_format="utf8").schema.field("value").type == pa.string() or 1 / 0
kafkalog.read_table(d, tiered=out / "nowhere") -> no directories of remote segments
kafkalog.scan(d, tiered=out / "nowhere") -> no directories of remote segments
kafkalog.verify(d, tiered=out / "nowhere") -> no directories of remote segments
kafkalog.verify(d, value_format="utf8").values
kafkalog.verify(d, topic="orders").topics == ["orders"] or 1 / 0
kafkalog.ls(d, tiered="x") -> kafkalog.open(path, tiered='x')
kafkalog.space(d, topic="orders")
kafkalog.batches(d, filter="x") -> batches has no option
len(kafkalog.batches(d, topic="orders").to_table()) == 1 or 1 / 0
kafkalog.boot(d, out, port=9092) -> nodes=
kafkalog.boot(d, out, retention="as-was") -> settings=
kafkalog.boot(d, out, settings_file="x") -> metadata=
kafkalog.convert(d, out, codec="zstd") -> compression=
kafkalog.export(d, out, partition_cols=["topic"]) -> partition_by=
kafkalog.groups(d, group="g") -> groups=
kafkalog.report(d, output="x.html") -> write(path)
kafkalog.scan(d).filter("x") -> filters=
kafkalog.scan(d).select("key") -> columns=
kafkalog.scan(d).collect() -> to_table()
kafkalog.scan(d).fetchall() -> to_pylist()
len(kafkalog.scan(d).df()) == 15 or 1 / 0
kafkalog.open(p).read_numpy().num_rows == 5 or 1 / 0
kafkalog.scan(d).to_parquet("x") -> kafkalog.export
kafkalog.scan(d).group_by("key") -> kafkalog.sql
kafkalog.scan(d).num_rows -> count_rows()
list(kafkalog.scan(p)) -> to_batches()
[record for record in kafkalog.scan(p)] -> kafkalog.cat
kafkalog.open(p).records -> kafkalog.cat
kafkalog.open(p).filter("x") -> filters=
kafkalog.open(p).end_offset -> log_end_offset
kafkalog.open(p).schema -> to_table().schema
0 in kafkalog.open(d)["orders"] or 1 / 0
kafkalog.open(d)["orders"][1] -> there are orders-0: use log_dir[topic, number]
kafkalog.open(d)["orders"][0:1] -> there are orders-0
kafkalog.open(d)[0] -> there are orders-0, orders-changelog-0, payments-0
kafkalog.read_log -> kafkalog.read_table
kafkalog.read_kafka -> kafkalog.read_table
kafkalog.scan_log -> kafkalog.read_table
kafkalog.scan_polars -> polars.scan_pyarrow_dataset(kafkalog.dataset(path))
kafkalog.compare(d, d) -> kafkalog.comparing.content.compare(a, b)
kafkalog.read_table(p, value_format="avro", value_schema="a.avsc") -> value_format={"format": "avro", "schema": '
kafkalog.write_table({"value": [b"a"]}, out, topic="t", partitions=3, partition_by="key") -> records go by their keys
kafkalog.write_table({"value": [b"a"]}, out, topic="t", headers={"a": b"1"}) -> a column headers
kafkalog.Writer(p) -> whose append(table) writes
kafkalog.read_schema(p) -> kafkalog.scan(path).schema
kafkalog.read_metadata(p) -> kafkalog.ls(path)
kafkalog.open(p).metadata -> kafkalog.ls(path)
kafkalog.File(p) -> kafkalog.open_log_dir(path)["orders", 0]
kafkalog.LogWriter(p, topic="t") -> kafkalog.PartitionWriter
kafkalog.to_polars -> kafkalog.read_polars
kafkalog.read_parquet -> kafkalog.load
kafkalog.to_parquet -> kafkalog.export
kafkalog.connect -> kafkalog.sql
kafkalog.DataFrame -> kafkalog.read_pandas
kafkalog.grep -> filters=
kafkalog.read_table(d, start="2034-11-28T00:00Z").num_rows == 0 or 1 / 0
kafkalog.read_table(d, start=3) -> start_timestamp=
kafkalog.write_table({"key": [b"a"]}, out, topic="a", partition=0) -> a column partition
kafkalog.open(d).partitions -> log_dir[topic, number]
kafkalog.sql(d, "select 1 as x").fetchall() == [(1,)] or 1 / 0
# Python's own protocols
kafkalog.open(p)[0] -> limit=1
kafkalog.open(p)[-2] -> tail(2)
kafkalog.open(p)[1:3] -> start_offset=1, end_offset=3
kafkalog.open(p)[-3:] -> tail(3)
kafkalog.open(p)[:] -> read_table(path)
kafkalog.open(p)["key"] -> to_table()['key']
kafkalog.scan(p)["key"] -> to_table()['key']
kafkalog.batches(p)[0] -> to_table()
len(kafkalog.open(p)) -> count_rows()
len(kafkalog.scan(p)) -> count_rows()
len(kafkalog.batches(p)) -> len(to_table())
len(kafkalog.open(d)) == 3 or 1 / 0
len(list(kafkalog.open(p))) == 5 or 1 / 0
kafkalog.open(p).__enter__().close()
kafkalog.scan(p).__enter__().to_table()
bool(kafkalog.batches(p)) or 1 / 0
# arguments by position, and of wrong types
kafkalog.scan(d, "orders") -> topics=
kafkalog.lookup(p, 3) -> offset=
kafkalog.open(p, "r") -> by position
kafkalog.write_table({"key": [b"a"]}, out, "orders") -> topic=
kafkalog.load(p) -> Write files of records
kafkalog.scan(p, decode="json") -> such as decode={"value": "json"}
kafkalog.scan(p, filters={"key": "k"}) -> filters=[('key', '==', 'k')]
# more of pandas, Polars, pyarrow, DuckDB and Kafka's clients
kafkalog.open(p).columns -> to_table().schema
kafkalog.open(p).offsets -> columns=["offset"]
kafkalog.open(p).info() -> kafkalog.ls
kafkalog.open(p).batches() -> kafkalog.batches
kafkalog.open(p).get(3) -> kafkalog.lookup
kafkalog.open(d).history() -> kafkalog.history
kafkalog.scan(p).read_all() -> to_table()
kafkalog.scan(p).collect_schema() -> schema
kafkalog.verify(p).to_json() -> to_dict
kafkalog.groups(d).lag -> [part.lag for part in result]
kafkalog.scan(p, tail=3) -> tail(10)
kafkalog.scan(p, follow=True) -> --follow
kafkalog.scan(p, offsets=(1, 3)) -> start_offset=
kafkalog.scan(p, encoding="utf-8") -> value_format=
kafkalog.scan(p, committed=True) -> isolation_level=
kafkalog.read_table(p, engine="polars") -> kafkalog.read_polars
kafkalog.export(p, out=out / "x.csv") -> output=
kafkalog.read_json -> value_format='json'
kafkalog.from_pandas -> kafkalog.write_table
kafkalog.to_kafka -> kafkalog.write_table
kafkalog.iter_records -> kafkalog.cat
kafkalog.iter_numpy -> kafkalog.scan(path).iter_numpy()
kafkalog.concat -> kafkalog.RecordColumns.concatenate([records, records])
kafkalog.read_batches -> kafkalog.batches(path)
kafkalog.varint -> kafkalog.codec.decode_varints
kafkalog.scan(p).batches() -> kafkalog.batches(path)
kafkalog.read_numpy(p).shape -> n_records
kafkalog.read_numpy(p).key.groupby() -> factorize()
len(kafkalog.read_numpy(p)) == 5 or 1 / 0
kafkalog.Log -> kafkalog.open
kafkalog.Topic -> kafkalog.open
kafkalog.Reader -> kafkalog.open
kafkalog.Dataset -> kafkalog.dataset
kafkalog.exceptions -> kafkalog.errors
kafkalog.sql("select 1 as x", d).to_polars()["x"].to_list() == [1] or 1 / 0
kafkalog.open(p).last() -> tail(1)
kafkalog.open(p).iter() -> kafkalog.cat
kafkalog.Client -> kafkalog.open
kafkalog.ConsumerRecord -> kafkalog.cat
kafkalog.consumer_lag -> kafkalog.groups
kafkalog.num_records -> count_rows
kafkalog.report(d).save("x.html") -> write("report.html")
kafkalog.CorruptRecordException -> kafkalog.errors
kafkalog.sql("select 1", d).show() -> use to_pandas(), or print()
kafkalog.ls(d).sort_values("bytes") -> use to_pandas()
kafkalog.load(p) -> kafkalog.read_table(path) reads a log
kafkalog.open(str(d).replace("/", chr(92))) -> did you mean /
kafkalog.sql("select * from orders_changelog", d) -> Did you mean "orders-changelog"?
kafkalog.read_index -> kafkalog.OffsetIndex.open
kafkalog.build_index -> kafkalog.OffsetIndex.build(segment
kafkalog.open(p).segments[0].offset_index.search(3) -> lookup
kafkalog.crc32c -> kafkalog.codec.crc32c
kafkalog.decode -> kafkalog.codec.decode
kafkalog.Writer -> kafkalog.PartitionWriter
# clients of Kafka
kafkalog.Consumer -> kafkalog.cat
kafkalog.KafkaConsumer -> kafkalog.cat
kafkalog.Producer and 1 / 0 -> division
kafkalog.Producer("out") -> producer_id must be an int, not 'out'; kafkalog.write_table(table, path, topic=name) writes
kafkalog.Producer(bootstrap_servers="host") -> kafkalog.write_table(table, path, topic=name)
kafkalog.Producer(5).produce("orders", b"a") -> kafkalog.write_table(table, path, topic=name)
kafkalog.PartitionWriter(topic="orders") -> kafkalog.PartitionWriter("DIR/orders-0")
kafkalog.PartitionWriter(out / "written-0").produce -> append(table)
kafkalog.open(p).get_watermark_offsets() -> log_start_offset and log_end_offset
kafkalog.open(p).seek(20) -> start_offset=42
kafkalog.errors.CorruptionError("crc_mismatch").offset -> base_offset, of the batch, and position
kafkalog.errors.CorruptionError("crc_mismatch").message -> use detail
kafkalog.errors.CorruptionError("crc_mismatch").code -> use reason
kafkalog.errors.CorruptionError("crc_mismatch").segment -> use path
kafkalog.errors.CorruptionError("crc_mismatch").foo -> there are base_offset, detail, length, path
kafkalog.batches(d).head(3) -> to_table()[:10]
kafkalog.scan(p).offsets -> kafkalog.read_table(path, columns=["offset"])["offset"]
kafkalog.consume -> kafkalog.cat
kafkalog.topics -> kafkalog.ls
kafkalog.list_topics -> kafkalog.ls
kafkalog.lag -> kafkalog.groups
kafkalog.count -> count_rows()
kafkalog.offsets -> kafkalog.groups
kafkalog.describe -> kafkalog.report
kafkalog.delete_records -> kafkalog.trim
kafkalog.snapshot -> kafkalog.salvage
kafkalog.fsck -> kafkalog.verify
kafkalog.LogFile -> kafkalog.open
kafkalog.topic_list -> kafkalog.ls
kafkalog.analyse -> kafkalog.batches
kafkalog.open(d).end_offsets() -> kafkalog.ls
kafkalog.open(p).end_offsets -> log_end_offset
# kafka-python, confluent-kafka
kafkalog.NewTopic -> kafkalog.write_table
kafkalog.AvroDeserializer -> value_format=
kafkalog.SchemaRegistryClient -> kafkalog.schemas(path)
kafkalog.open(p).assign([1]) -> kafkalog.open_log_dir(path)[topic, number]
kafkalog.open(p).position() -> log_start_offset, and log_end_offset
kafkalog.open(p).seek_to_end() -> tail(10)
kafkalog.open(p).seek_to_beginning() -> kafkalog.scan(path), which reads from the first record
kafkalog.open(p).commit() -> kafkalog.groups(path)
kafkalog.open(d).partitions_for_topic("orders") -> log_dir[topic]
kafkalog.open(d).orders -> log_dir['orders']
kafkalog.read_sql -> kafkalog.sql(query, path)
kafkalog.ParquetFile -> kafkalog.scan(path)
kafkalog.read_table(str(d / "*ers")) -> topics=['orders']
kafkalog.count -> kafkalog.ls(path) for each partition
kafkalog.export(d, out / "written.parquet", topic="orders").path.endswith("written.parquet") or 1 / 0
kafkalog.frobnicate -> there are batches, boot, cat
kafkalog.BatchHeaderOf -> there are
kafkalog.sql("select 1", d).fetchone() -> fetchall()[0]
kafkalog.sql("select 1", d).fetchdf() -> df()
kafkalog.read_table(d, filters="offset < 5 & partition == 0") -> '&' joins no conditions; write and
kafkalog.verify(d, strict=True) -> the result's ok
kafkalog.verify(d).n_damage -> len(findings)
kafkalog.verify(d).summary -> print() of it
kafkalog.groups(d).total_lag -> sum([part.lag for part in result])
kafkalog.salvage(d, out / "s", overwrite=True) -> another output
kafkalog.trim(p, before="2026-01-01") -> use before_offset= or before_timestamp=
kafkalog.trim(p, older_than="7d") -> use before_timestamp= or retention_ms=
kafkalog.open(p).segments[0].first_offset -> base_offset
kafkalog.open(p).segments[0].is_active -> is_last
kafkalog.write_table([{"value": b"a"}], out, topic="t") -> pyarrow.Table.from_pylist(rows)
next(kafkalog.open(p).iter_batches()).size -> there are batches, segment
# times, places and columns under other names
kafkalog.scan(d, start_offset="2024-01-01") -> a dict by (topic, partition), not '2024-01-01'; use start_timestamp='2024
kafkalog.read_table(d, filesystem=object()) -> kafkalog.location(url, filesystem=filesystem) as the path
kafkalog.read_table(d, columns=["offset", "ts"]) -> use timestamp
kafkalog.open(p).seek("2024-01-01") -> or since="
# names that nothing has: the error lists what there is
kafkalog.OffsetIndex.load("x") -> use kafkalog.OffsetIndex.open(path)
kafkalog.LogDir.open(d) -> use kafkalog.open(path)
kafkalog.RecordColumns.from_dict({}) -> use kafkalog.RecordColumns(2, {"offset": np.arange(2)})
kafkalog.BinaryColumn.from_list([]) -> use kafkalog.BinaryColumn.of(
kafkalog.OffsetIndex.open(5) -> path must be a str or a path
kafkalog.OffsetIndex.open("x", foo=1) -> OffsetIndex.open has no option 'foo'; there are path, base_offset
next(kafkalog.cat(p)).foo -> there are headers, key, offset, partition, timestamp, topic, value
next(kafkalog.cat(p)).to_dict() -> use _asdict()
next(kafkalog.cat(p)).topic_partition -> use topic and partition
kafkalog.open(p).offset_for_timestamp(ts=5) -> Partition.offset_for_timestamp has no option 'ts'; there is timestamp
kafkalog.open(p).segments[0].find_offsets(offset=5) -> did you mean offsets=?
kafkalog.LogConfig().foo -> there are cleanup_policy
kafkalog.types.foo -> there are AppendResult
kafkalog.sql("select 1", d, foo=1) -> sql has no option 'foo'; there are topics
kafkalog.open(p).last_offsets -> log_end_offset
kafkalog.scan(d, min_timestamp=1) -> there are end_timestamp, start_timestamp
# NumPy
kafkalog.read_time_index -> kafkalog.TimeIndex.open("FILE.timeindex")
kafkalog.open_time_index -> kafkalog.TimeIndex.open("FILE.timeindex")
kafkalog.read_txn_index -> kafkalog.TransactionIndex.open("FILE.txnindex")
kafkalog.read_producer_snapshot -> kafkalog.ProducerSnapshot.open("FILE.snapshot")
kafkalog.write_index -> tofile("new.index")
kafkalog.murmur2 -> kafkalog.codec.partitions(
kafkalog.partition_for_key -> kafkalog.codec.partitions(
kafkalog.partition_for_keys -> kafkalog.codec.partitions(
kafkalog.partition_for -> kafkalog.codec.partitions(
kafkalog.compress -> kafkalog.codec.encode(records, compression="zstd") for records, pyarrow.compress for other bytes
kafkalog.decompress -> kafkalog.codec.decode(data) for records, pyarrow.decompress for other bytes
kafkalog.read_table(p, headers=["a"]) -> kafkalog.read_numpy(path).headers["name"]
kafkalog.scan(p).filter(len) -> where=
kafkalog.scan(p).to_numpy_batches() -> iter_numpy()
kafkalog.read_numpy(p).save("x") -> np.savez(file, **records.to_arrays())
kafkalog.open(p).segments[0].offset_index.save("x") -> tofile(path)
kafkalog.check_crcs -> kafkalog.codec.check_crcs(data)
kafkalog.encode_varints -> kafkalog.codec.encode_varints
kafkalog.decode_headers -> kafkalog.codec.decode_headers
kafkalog.parse_int -> kafkalog.functions.parse_int
kafkalog.gaps -> np.diff
kafkalog.open(p).segments[0].check_crcs() -> verify()
kafkalog.open(p).segments[0].crc_ok -> verify()
kafkalog.open(p).segments[0].batch_headers -> use batches
kafkalog.open(p).segments[0].read() -> to_numpy()
kafkalog.open(p).segments[0].batches.crc_ok -> kafkalog.codec.check_crcs(data)
kafkalog.open(p).segments[0].batches["last_offset_delta"] -> there are position, size_in_bytes
kafkalog.open(p).segments[0].batches["base_offset"].tolist() == [0] or 1 / 0
np.asarray(kafkalog.open(p).segments[0].batches)[:2]["base_offset"].tolist() == [0] or 1 / 0
kafkalog.scan(p, filters=len) -> where=
kafkalog.scan(p, filter=lambda record: True) -> where=
list(kafkalog.scan(p)) -> iter_numpy()
kafkalog.read_numpy(p, dtype="S") -> to_numpy("S16")
kafkalog.read_numpy(p, columns=["headers.trace-id"]) -> columns=['headers'], and records.headers['trace-id']
kafkalog.read_numpy(p).headers["trace-id"] -> headers.get('trace-id')
"offset" in kafkalog.read_numpy(p).to_structured().dtype.names or 1 / 0
kafkalog.read_numpy(p).nbytes > 0 or 1 / 0
kafkalog.read_numpy(p).keys.astype(str) -> records.key.astype
kafkalog.read_numpy(p).key.astype(str) -> to_numpy("U")
kafkalog.read_numpy(p).key.murmur2() -> kafkalog.codec.partitions
kafkalog.OffsetIndex.build(kafkalog.open(p).segments[0], interval=1024) -> index_interval_bytes=
kafkalog.read_numpy(p).head(3) -> records[:10]
kafkalog.read_numpy(p).to_arrays(1, 2, 3) -> to_arrays takes nothing by position
kafkalog.read_numpy(p).tail(3) -> records[-10:]
kafkalog.read_numpy(p).filter(None) -> records[mask]
kafkalog.read_numpy(p).sort("timestamp") -> take(np.argsort(
kafkalog.read_numpy(p).groupby("key") -> to_pandas()
kafkalog.read_numpy(p).copy() -> take(slice(None))
kafkalog.read_numpy(p).with_columns() -> RecordColumns(
kafkalog.read_numpy(p).iterrows() -> to_arrow()
kafkalog.read_numpy(p).key.isin([b"a"]) -> np.isin(
kafkalog.read_numpy(p).key.startswith(b"a") -> pc.starts_with(
kafkalog.read_numpy(p).key.max() -> argsort()
kafkalog.open(p).segments[0].batches.timestamps -> max_timestamp
kafkalog.open(p).segments[0].batches.n_records -> records_count
kafkalog.open(p).segments[0].batches.compression -> codec
kafkalog.open(p).segments[0].offset_index.size -> len(...)
kafkalog.open(p).segments[0].time_index.datetimes() -> astype("datetime64[ms]")
np.asarray(kafkalog.scan(p)) -> to_numpy()
np.asarray(kafkalog.open(p)) -> to_numpy()
np.asarray(kafkalog.batches(p)) -> to_table()
kafkalog.codec.decode(str(p)) -> kafkalog.read_numpy(
kafkalog.codec.decode(kafkalog.open(p).segments[0]) -> to_numpy()
kafkalog.codec.check_crcs(p) -> kafkalog.read_numpy(
kafkalog.write_numpy -> kafkalog.write_table
"""
SECOND_DAY = """
kafkalog.sql('select count(*) from orders where "offset" < ?', d, params=[3]).fetchall() == [(3,)] or 1 / 0
kafkalog.sql('select count(*) from orders where "offset" < ?', d) -> params= has the values of ?
kafkalog.sql('select 1', d, parameters=[1]) -> use params=
kafkalog.register -> con.register("orders", kafkalog.scan(path, topics="orders"))
kafkalog.read_table(d, schema={"fruit": str}) -> value_format="json", which takes types from the values, and columns=[
# wrong arguments
kafkalog.Limits(max_batch=1) -> did you mean max_batch_bytes=?
kafkalog.LogConfig(segment_byte=1) -> did you mean segment_bytes=?
kafkalog.LogConfig(1) -> LogConfig takes nothing by position
kafkalog.scan(d, limits={"max_batch_bytes": 1}) -> use limits=kafkalog.Limits(max_batch_bytes=1)
kafkalog.write_table({"value": [b"a"]}, out, topic="t", config={"segment.bytes": 9}) -> LogConfig.from_properties({'seg
kafkalog.read_table(d, columns=[1]) -> columns must be a list of str, not [1]
kafkalog.read_table(d, columns="offset") -> use columns=['offset']
kafkalog.read_table(d, columns=np.array(["offset"])).column_names == ["offset"] or 1 / 0
kafkalog.read_table(d, start_offset=np.int64(3), partitions=np.arange(1)).num_rows == 6 or 1 / 0
kafkalog.read_table(d, start_offset=-1) -> kafkalog.scan(path).tail(1)
kafkalog.read_table(d, threads="4") -> use threads=4
kafkalog.read_table(d, check_crcs="no") -> check_crcs must be True or False
kafkalog.read_table(d, storage_options="x") -> such as storage_options={"endpoint"
kafkalog.read_table(d, start_timestamp=np.datetime64("NaT")) -> must be an int, a str or a datetime with a zone
kafkalog.read_table(d, start_timestamp=datetime.date(2026, 1, 1)) -> use start_timestamp="2026-01-01"
kafkalog.open_buffer("abc") -> kafkalog.open(path) opens a file
kafkalog.open_buffer(b"", topic_partition="orders-0") -> such as topic_partition=("orders", 0)
kafkalog.write_table({"value": [b"a"]}, out, topic=["t"]) -> topic must be a str
kafkalog.write_table({"value": 1}, out, topic="t") -> a list or an array for each column
kafkalog.open(file).x -> .log' by its name
kafkalog.trim(5, before_offset=1) -> path must be a str or a path, not 5
kafkalog.sql(5, d) -> kafkalog.sql('select
kafkalog.dump(d) -> orders-0/*.log
kafkalog.open(p).segments[0].scan(5) -> scan takes nothing by position, and the others by name: topics=
kafkalog.export(d, out / "x.csv", sep=";") -> pyarrow.csv.write_csv
kafkalog.export(d, out / "x.csv", header=False) -> pyarrow.csv.write_csv
kafkalog.read_table(d, sort="offset") -> sort_values()
kafkalog.ls(d, sort="size") -> sort_values()
kafkalog.verify(d, fix=True) -> kafkalog.salvage
kafkalog.verify(d).partitions["orders", 0].ok or 1 / 0
kafkalog.verify(d).partitions["order", 0] -> there are orders
kafkalog.Finding("crc_mismatch").message -> use detail
kafkalog.Finding("crc_mismatch").severity -> use damage
kafkalog.ls(d)[0].start_offset -> use start
"ViewColumn(15 values" in repr(kafkalog.read_numpy(d, binary_type=pa.binary_view()).key) or 1 / 0
# arguments of methods
kafkalog.scan(d).to_polars(lazy=True) -> to_polars().lazy()
kafkalog.scan(d).to_batches(batch_size=5) -> kafkalog.scan(path, batch_size=5).to_batches()
kafkalog.scan(d).to_pandas(chunksize=5) -> (batch.to_pandas() for batch in kafkalog.scan(path, batch_size=5)
kafkalog.scan(d).to_table(5) -> head(5)
kafkalog.scan(d).to_table(columns=["offset"]) -> kafkalog.scan(path, columns=['offset'])
kafkalog.scan(d).to_table(topic="orders") -> kafkalog.scan(path, topics='orders')
kafkalog.batches(d).to_table(columns=["base_offset"]) -> kafkalog.batches(path, columns=['base_offset'])
kafkalog.verify(d).to_pandas(orient="records") -> it has none
kafkalog.open(d).to_table(foo=1) -> a scan has no option 'foo'; there are
kafkalog.open(d).verify(foo=1) -> no option 'foo'
# properties, and lists of names
kafkalog.open(d).topics() -> leave out the parentheses
kafkalog.open(d).topics["orders"] -> log_dir['orders']
kafkalog.open(p).segments[0].batches() -> leave out the parentheses
list(kafkalog.open(p).segments[0].batches) -> to_arrow().to_pylist()
kafkalog.open(d).partitions -> kafkalog.ls(path).to_pandas()
next(iter(kafkalog.open(d))).name -> log_dir[it]
# options
kafkalog.read_table(d, exclude="orders") -> topics=["!orders"]
kafkalog.write_table({"id": ["a"]}, out, topic="a", key="id") -> columns={"key": "id"}
kafkalog.write_table({"value": [b"a"]}, out, topic="a", mode="overwrite") -> another path or topic
kafkalog.export(d, out / "topic.csv", topic="orders").n_records == 5 or 1 / 0
kafkalog.ls(d, topic="orders").topics == ["orders"] or 1 / 0
kafkalog.ls(d, topic="orders", topics="orders") -> topic is topics, which is there twice
kafkalog.scan(d, foo=1) -> , ...
kafkalog.export(d, out / "a.csv", mode="append") -> use resume=
# results
kafkalog.verify(d).problems -> use findings
kafkalog.verify(d).is_valid -> use ok
kafkalog.verify(d).lost_records -> use losses
kafkalog.verify(d).findings.to_pandas()
kafkalog.verify(d)["orders", 0].ok or 1 / 0
kafkalog.verify(d)["ordres"] -> did you mean 'orders'?
kafkalog.report(d).losses -> to_pandas('losses')
kafkalog.ls(d).end -> [part.end for part in result]
kafkalog.ls(d).partitions -> result[topic, number]
kafkalog.schemas(d).subjects -> [part.subject for part in result]
kafkalog.groups(d).members -> [part.members for part in result]
# names of the package
kafkalog.to_spark -> kafkalog.spark.register(spark)
kafkalog.read_spark -> kafkalog.spark.register(spark)
kafkalog.register -> kafkalog.spark.register(spark)
kafkalog.offsets_for_times -> kafkalog.lookup
kafkalog.offset_for_timestamp -> kafkalog.lookup
kafkalog.repair(d) -> kafkalog.salvage
kafkalog.undeleting(d) -> kafkalog.undelete
kafkalog.plot -> kafkalog.report(path)
kafkalog.write_pandas -> kafkalog.write_table
kafkalog.to_dask -> dask.dataframe.read_parquet
kafkalog.scan(d).to_dask() -> dask.dataframe.read_parquet
kafkalog.scan(d).json_normalize("value") -> value_format="json"
kafkalog.read_groups -> kafkalog.groups
kafkalog.read_group_offsets -> kafkalog.groups
kafkalog.get_transactions -> kafkalog.transactions
kafkalog.list_producers -> kafkalog.producers
kafkalog.write_foo -> kafkalog.write_table
kafkalog.save_foo -> kafkalog.export
kafkalog.open(p).read(5) -> start_offset=42
"""
RESULTS = """
kafkalog.ls(d)
kafkalog.groups(d)
kafkalog.producers(d)
kafkalog.epochs(d)
kafkalog.index_stats(d)
kafkalog.lookup(p, offset=3)
kafkalog.space(d)
kafkalog.report(d)
kafkalog.verify(d)
kafkalog.preflight(d)
kafkalog.transactions(d)
kafkalog.diff(p, p)
kafkalog.salvage(d, out / "saved", dry_run=True)
kafkalog.merge([d, d], out / "merged", dry_run=True)
kafkalog.convert(d, out / "converted", dry_run=True)
kafkalog.reindex(d, dry_run=True)
kafkalog.recover(d, dry_run=True)
kafkalog.scan(p)
kafkalog.batches(p)
kafkalog.sql("select 1 as x", d)
"""
COMMANDS = """
kafkalog ls D orders-0 -> kafkalog ls PATH -t orders -p 0
kafkalog list D
kafkalog cat D --columns offset,vaule -> value
kafkalog cat D -t ordrs -> orders
kafkalog cat P --colums key -> --columns
kafkalog cat P --start-ofset key -> --start-offset
kafkalog verfy P -> verify
kafkalog export D x.parquet -> -o/--output
kafkalog index_stats P
kafkalog index stats P
kafkalog rebuild-indexes P -> reindex
kafkalog ls D -t 'ordre*' -> no topic matches
kafkalog diff D D -> orders-0
kafkalog topics D -> ls
kafkalog cat D/orders -> -t orders
kafkalog schemas D orders-value --version latest -> --subjects orders-value
kafkalog export D -o orders.db -> databases are not written; write orders.csv
kafkalog cat D orders -> -t orders
kafkalog cat --topic orders D
kafkalog read P -> cat
kafkalog check P
kafkalog show P -> cat
kafkalog info P -> ls
kafkalog stat P -> ls
kafkalog find --key k3 P -> lookup
kafkalog reindex P -> --dry-run
kafkalog index P -> reindex
kafkalog export --format csv P -> -o/--output
kafkalog scan D -> cat
kafkalog trim P --before 2 -o X -> --before-offset
"""
OTHER_TOOLS = """
# the shell
kafkalog head P
kafkalog head -n 2 P
kafkalog head -2 P
kafkalog tail P
kafkalog tail -n 2 P
kafkalog grep k D -> kafkalog cat
kafkalog grep k D -> --filter 'key contains k or value contains k'
kafkalog get D k -> --filter 'key == k'
kafkalog du D
kafkalog du -h D
kafkalog fsck D
kafkalog wc D -> count(*)
kafkalog ll D
kafkalog find D k -> --filter 'key == k'
kafkalog less P -> kafkalog cat
kafkalog cp D X -> kafkalog salvage
kafkalog rm D -> kafkalog convert
kafkalog watch D -> --follow
kafkalog md5sum P -> kafkalog verify
kafkalog hexdump P -> kafkalog dump
kafkalog cmp D D -> kafkalog diff
kafkalog mount D -> the commands are below
kafkalog help cat
kafkalog help
kafkalog version
kafkalog ls -l D -> leave it out
kafkalog ls -lh D -> leave it out
kafkalog ls -la D -> leave it out
kafkalog ls --sort size D -> jq
kafkalog ls --limit 5 D -> head
kafkalog cat P --head 2 -> -n 2
kafkalog cat P --limit 2
kafkalog cat P --lines 2 -> -n 2
kafkalog cat P --since 1h -> --start-timestamp -1h
kafkalog cat P --last 1h -> end-1h
kafkalog cat P --grep k -> --filter 'key contains k or value contains k'
kafkalog space D --sort size -> --json
kafkalog verify D --fix -> kafkalog verify
# first words of people who know none
kafkalog info D -> kafkalog ls
kafkalog describe D -> kafkalog report
kafkalog topics D -> kafkalog ls
kafkalog consumer-groups D
kafkalog lag D
kafkalog offsets D -> kafkalog groups
kafkalog start D -> kafkalog preflight
kafkalog start D -> kafkalog boot
kafkalog erase D --key k -> --drop 'key == k'
kafkalog delete D -> convert
kafkalog gdpr D -> convert
kafkalog to-parquet P -> export
kafkalog export P out.parquet -> -o
kafkalog count D -> sql 'select count(*)
kafkalog lagg D -> the commands are below
kafkalog headers D -> --columns
kafkalog sort D -> kafkalog sql
kafkalog cut -f1 D -> --columns
kafkalog tombstones D -> value is null
kafkalog dedupe D -> --latest key
kafkalog plot D -> --plot
kafkalog upgrade P -> kafkalog convert
kafkalog convert P --to v2 -> leave it out
kafkalog cat P -c5 -> -n 5
kafkalog cat P --reverse -> --tail
kafkalog cat P --output x.json -> kafkalog export
kafkalog cat P --pretty -> jq
kafkalog verify D --quick -> --indexes-only
kafkalog groups D --reset-offsets -> kafka-consumer-groups.sh
kafkalog trim P --days 7 -> --before-timestamp -7d
kafkalog lookup P --key k -> --filter 'key == k'
kafkalog xyzzy D -> the commands are below
kafkalog repair D -> kafkalog verify
kafkalog backup D -> kafkalog salvage
kafkalog dashboard D -> report.html
kafkalog sizes D -> kafkalog space
kafkalog vacuum D -> kafkalog compact
kafkalog cat D --key k -> --filter 'key == k'
kafkalog cat D --value v -> --filter 'value contains v'
kafkalog cat D --where a -> --filter
kafkalog cat D --remote URL -> --tiered URL
kafkalog cat D --partition 0
kafkalog cat D --start 3 -> --start-offset
kafkalog cat D --start_offset 3
kafkalog cat D --isolation read_committed
kafkalog cat D --format json -> --json
kafkalog cat D --skip-errors -> --on-corruption skip
kafkalog cat D --from-beginning -> leave it out
kafkalog cat D --max 2 -> -n 2
kafkalog cat D --frobnicate -> its options are below (see kafkalog cat -h)
kafkalog report D --html x.html -> -o report.html
kafkalog report D --format html -> -o report.html
kafkalog report D --open -> -o report.html
kafkalog boot D -o OUT --port 9092 -> --listeners 127.0.0.1:9092
kafkalog boot D -o OUT --replicas 3 -> --nodes 3
kafkalog boot D -o OUT --retention as-was -> retention=as-was
kafkalog boot D -o OUT --missing empty -> begin at their highest known offset
kafkalog boot D -o OUT --copy hardlink -> blocks are shared
kafkalog boot D -o OUT --topic-id orders=x -> --set TOPIC:topic.id=ID
kafkalog boot D -o OUT --settings topics.json -> --metadata topics.json
kafkalog boot D -o OUT --node-id 7 -> --nodes 7@HOST:PORT
kafkalog boot D -o OUT --threads 2 -> all processors
kafkalog boot D --dry-run --version 4.0 -> --release 4.0
kafkalog boot D --dry-run --kafka-version 4.0 -> --release 4.0
kafkalog groups D --group g1 -> no group 'g1'
kafkalog export D --out x.parquet -> -o x.parquet
kafkalog export D -o x.parquet --force -> --overwrite
kafkalog convert P -o c --codec zstd -> --compression zstd
kafkalog convert P -o c --delete k -> --drop
kafkalog recover D --force -> --in-place
kafkalog recover D --simulate -> --dry-run
kafkalog truncate P --to 3 -> --to-offset
kafkalog load x.csv -o y --topic-name t -> --topic t
kafkalog verify D --jobs 2 -> --threads 2
# AWS
kafkalog ls s3://b/k --endpoint-url http://h -> --storage-option endpoint=http://h
kafkalog ls s3://b/k --region eu -> --storage-option region=eu
kafkalog ls s3://b/k --profile p -> AWS_PROFILE=p
# DuckDB
kafkalog query "select 1" D
kafkalog duckdb D -> kafkalog sql
kafkalog select D -> kafkalog sql
# kcat
kafkalog cat P -o beginning -> kafkalog cat PATH (see
kafkalog cat P -o -5 -> --tail
kafkalog cat P -c 2 -> -n 2
kafkalog cat P -J -> --json
kafkalog cat P -e -> leave it out
kafkalog cat P -K : -> --columns
kafkalog cat P -s value=avro -> --value-format
kafkalog cat P -r http://h -> --schema-registry
kafkalog cat P -f '%o %k' -> --columns
kafkalog -C -b h:9092 -t orders -> kafkalog cat
kafkalog cat -b h:9092 P -> reads files
kafkalog kcat D -> kafkalog cat
# Kafka's scripts
kafkalog kafka-dump-log.sh S
kafkalog dump-log S
kafkalog DumpLogSegments S
kafkalog kafka.tools.DumpLogSegments S
kafkalog kafka-consumer-groups.sh D
kafkalog kafka-topics.sh --describe -> kafkalog ls
kafkalog kafka-console-consumer D -> kafkalog cat
kafkalog kafka-console-producer D -> kafkalog load
kafkalog kafka-log-dirs D -> kafkalog ls
kafkalog kafka-get-offsets D -> kafkalog ls
kafkalog kafka-configs D -> kafkalog metadata
kafkalog kafka-metadata-shell D -> kafkalog metadata
kafkalog kafka-delete-records D -> kafkalog trim
kafkalog kafka-storage format -> kafkalog boot
kafkalog kafka-transactions D
kafkalog groups D --all-groups -> leave it out
kafkalog groups D --bootstrap-server h:9092 -> reads files
kafkalog ls D --describe -> leave it out
kafkalog ls D --zookeeper h -> reads files
kafkalog cat D --max-messages 2 -> -n 2
kafkalog cat D --property print.key=true -> --columns
kafkalog cat D --offset 3 -> --start-offset
kafkalog dump --files S
kafkalog lookup D --time 5 -> --timestamp
# etcdctl
kafkalog del D k -> --drop 'key == k'
kafkalog put D k -> kafkalog load
kafkalog snapshot D -> kafkalog salvage
kafkalog defrag D -> kafkalog compact
kafkalog member D -> kafkalog groups
kafkalog health D -> kafkalog report
kafkalog cat D --prefix k -> starts_with k
kafkalog cat D --keys-only -> --columns
kafkalog ls D -w json -> --json
kafkalog ls D --endpoints h -> reads files
# sst_dump
kafkalog cat --file=P -> pass
kafkalog scan D -> kafkalog cat
kafkalog raw S -> kafkalog dump
kafkalog properties P -> batches
kafkalog cat D --from=3 -> --start-offset
kafkalog cat D --read_num=3 -> -n 3
kafkalog cat D --output_hex -> --columns
kafkalog verify D --verify_checksum -> --deep
kafkalog recompress P -> convert
"""
MORE_MISTAKES = """
kafkalog D -> a command comes first: kafkalog ls
kafkalog --files S -> kafkalog dump
kafkalog cat P --since 2024-01-01 -> kafkalog cat PATH --start-timestamp 2024-01-01
kafkalog cat P --since yesterday -> kafkalog cat PATH --start-timestamp -1d
kafkalog cat P --since 1h -> --start-timestamp -1h
kafkalog cat P -o out.csv -> kafkalog export PATH -o out.csv
kafkalog cat P -o 5 -> kafkalog cat PATH --start-offset 5
kafkalog cat P --where offset>3 -> --filter 'offset>3'
kafkalog rm D -t orders -> kafkalog salvage PATH -o DIR -T orders
kafkalog rm D -t orders --key k -> -t orders -o DIR --drop 'key == k'
kafkalog search D 'value contains foo' -> --filter 'value contains foo'
kafkalog index S -> kafkalog dump
kafkalog verify-index D
kafkalog decompress P -> --compression none
kafkalog anonymize D -> --redact value=null
kafkalog redact D --key 42 -> --redact-where 'key == 42'
kafkalog run-class kafka.tools.DumpLogSegments --files S
kafkalog dump-log-segments S
kafkalog reassign-partitions D -> kafkalog metadata
kafkalog rg k D -> --filter 'key contains k or value contains k'
kafkalog df D -> kafkalog space
kafkalog rewind P -> --start-offset
kafkalog lint D -> kafkalog verify
kafkalog mv D X -> kafkalog salvage
kafkalog rename-topic D X -> --isolation-level read_committed -o FILE.parquet, then kafkalog load
kafkalog acls D -> --show acls
kafkalog man cat
kafkalog cat P --csv -> kafkalog export
kafkalog cat P --sort offset -> order by
kafkalog cat P --count -> kafkalog export PATH --dry-run
kafkalog cat P --regex k.* -> key matches
kafkalog cat P --no-value -> --columns offset,key
kafkalog cat P --first 2 -> -n 2
kafkalog cat P --last 2 -> --tail 2
kafkalog cat P --skip-message-on-error -> --on-corruption skip
kafkalog cat P --skip 2 -> kafkalog cat PATH --start-offset 2
kafkalog cat P --where "key = 'k'" -> --filter "key = 'k'"
kafkalog cat P --wide -> --json
kafkalog cat P --tz UTC -> times are UTC
kafkalog cat P --timeout-ms 5 -> leave it out
kafkalog cat P --formatter-property print.key=true -> --columns
kafkalog lookup P --at 5 -> kafkalog lookup PATH --timestamp 5
kafkalog ls D --csv -> --json > FILE
kafkalog ls -1 D -> leave it out
kafkalog ls --topics D -> --topics took
kafkalog transactions list D
kafkalog groups describe D
kafkalog producers --list D -> leave it out
kafkalog ls D -o x.csv -> > FILE
kafkalog verify D -o x.json -> > FILE
kafkalog verify D --html x.html -> kafkalog report
kafkalog verify D --fail-fast -> exit code
kafkalog verify D --no-crc -> --indexes-only
kafkalog verify D --progress -> -q
kafkalog export P --to x.parquet -> -o x.parquet
kafkalog export P --to 3 -o x.csv -> kafkalog export PATH --end-offset 3 -o x.csv
kafkalog convert P -o c --remove 'key == k' -> --drop 'key == k'
kafkalog convert P -o c --exclude k -> --drop 'key == k'
kafkalog convert P -o c --level 3 -> --compression-level 3
kafkalog sql --query 'select 1' D -> the query comes first
kafkalog groups D --lag -> leave it out
kafkalog groups D --reset-offsets -> option --reset-offsets; groups are only read here
kafkalog export D --csv out.csv -> kafkalog export PATH -o out.csv
kafkalog ls D -j -> --json
kafkalog cat D --jq .user -> --json
kafkalog decode D -> --value-format
kafkalog cat D/orders-7 -> has orders-0
kafkalog ls 'C:\\kafka\\logs' -> /mnt/c/kafka/logs
kafkalog ls out.parquet -> kafkalog load
kafkalog ls disk.img -> kafkalog undelete
kafkalog ls notes.txt -> or name a log dir
kafkalog ls backup.tgz -> unpack it
kafkalog cat D --filter 'value.user == 3' -> --value-format json
kafkalog convert P -o c --drop 'value.user == 3' -> --value-format json
kafkalog cat D --schema-registry http://h -> --value-format
kafkalog sql 'show tables' D
kafkalog sql 'select keys from orders' D -> there are topic
"""
FIRST_TRIES = """
# kcat
kafkalog -C -t orders D -> kafkalog cat -t orders PATH
kafkalog cat D -t orders -o -10 -e -> --tail 10
kafkalog cat P -o s@1700000000000 -> --start-timestamp 1700000000000
kafkalog cat P -o e@1700000000000 -> --end-timestamp 1700000000000
kafkalog -Q -t orders:0:1700000000000 D -> kafkalog lookup
kafkalog cat D -X isolation.level=read_committed -> --isolation-level read_committed
kafkalog cat D -X fetch.min.bytes=5 -> leave it out
# Kafka's scripts
kafkalog verify D --index-sanity-check -> --indexes-only
kafkalog delete-records D --offset-json-file x.json -> --before-offset N
kafkalog cat D --consumer-property isolation.level=read_committed -> leave it out
# tables
kafkalog schema P -> 'describe records'
kafkalog rowcount P -> count(*)
kafkalog meta S -> kafkalog ls
kafkalog convert D -o c --from kafka -> kafkalog export
kafkalog convert D -o c --to parquet -> kafkalog export PATH -o c --format parquet
kafkalog convert D -o c --format csv -> kafkalog export PATH -o c --format csv
kafkalog 'select count(*) from orders' -> kafkalog sql 'select count(*) from orders' PATH
kafkalog 'with a as (select 1) select * from a' D -> kafkalog sql 'with
kafkalog sql -csv D 'select 1'
kafkalog sql -json D 'select 1'
kafkalog cat P -limit 2
kafkalog cat P -output x.csv -> kafkalog export
kafkalog ls -help
# the shell
kafkalog cat D -t orders .value -> --json --value-format json | jq .value
kafkalog cat D -t orders -r --slurp -> --columns value
kafkalog cat D -t orders 'offset > 3' -> --filter 'offset > 3'
kafkalog cat D -t orders 'select 1' -> kafkalog sql 'select 1'
kafkalog rg -i ERROR D -> --filter 'key matches "(?i)ERROR" or value matches "(?i)ERROR"'
kafkalog grep -i -c foo D -> kafkalog export PATH --dry-run --filter 'key matches "(?i)foo" or value matches
kafkalog grep -c foo D -> kafkalog export PATH --dry-run --filter 'key contains foo or value contains foo'
kafkalog stat --batches D -> kafkalog batches PATH
kafkalog groups D --lag --sort lag --reverse -> sort_by(.lag)
kafkalog undelete disk.img --topic T -o s84 -> kafkalog undelete disk.img -o s84
kafkalog restore out.parquet -o back3 --topic t -> kafkalog load out.parquet -o back3 --topic t
kafkalog grep -v foo D -t orders -> -t orders --filter '(key is null or not key contains foo) and (value is null
kafkalog grep -vi foo D -> (value is null or not value matches "(?i)foo")
kafkalog grep -e foo -e bar D -> 'key matches "foo|bar" or value matches "foo|bar"'
kafkalog du -sh D -> leave it out
kafkalog D verify -> kafkalog verify
kafkalog D prüfen -> kafkalog verify
kafkalog fsck -y D -> kafkalog verify
kafkalog rsync -avz D X -> kafkalog salvage
kafkalog sync D X -> kafkalog salvage
# British and German
kafkalog summarise D -> kafkalog report
kafkalog anonymise D -> --redact
kafkalog optimise D -> kafkalog compact
kafkalog ls D --no-colour -> leave it out
kafkalog prüfen D
kafkalog hilfe
kafkalog reparieren D -> kafkalog verify
kafkalog recover D --trockenlauf -> --dry-run
# compounds
kafkalog delete-topic D orders -> kafkalog salvage PATH -o DIR -T orders
kafkalog purge-key D user-1 -> --drop
kafkalog dump-json P -> kafkalog cat PATH --json
kafkalog inspect-batch P -> kafkalog ls
kafkalog group-offsets D -> kafkalog groups
kafkalog compaction-status D -> kafkalog compact
kafkalog check-damage D -> kafkalog verify
kafkalog analyse-batches D -> kafkalog batches
kafkalog frobnicate-twice D -> the commands are below
kafkalog aws s3 ls s3://b -> kafkalog ls s3://
kafkalog exec 'select 1' D -> kafkalog sql
kafkalog cat P --print-offset -> --columns
kafkalog cat P --skip-offsets 5 -> --start-offset
kafkalog dump S --print-records -> --print-data-log
kafkalog dump S --decode json -> --print-data-log
kafkalog diff P P --summary -> leave it out
kafkalog verify D --strict -> leave it out
"""
KINDS = """
# a verb and a noun
kafkalog list groups D
kafkalog describe producers D
kafkalog list topics D -> kafkalog ls PATH
kafkalog get topics D -> kafkalog ls PATH
kafkalog show orders D -> kafkalog cat PATH -t orders
kafkalog describe topic orders D -> kafkalog ls PATH -t orders
# names of topics as words
kafkalog consume orders D -> kafkalog cat PATH -t orders
kafkalog count orders-changelog D -> select count(*) from "orders-changelog"
kafkalog orders -> kafkalog cat PATH -t orders
kafkalog cat D --include orders -> use --topics orders (names
# plural and singular
kafkalog logs orders-0 -> kafkalog cat
kafkalog histograms P -> kafkalog batches PATH --summary
# options before a command
kafkalog --deep-iteration S -> a command comes first: kafkalog ls PATH
kafkalog --frobnicate D -> a command comes first: kafkalog ls PATH
# one dash before a word
kafkalog cat D -topic orders
kafkalog sql -csv -header 'select 1' D -> the first line has the names
kafkalog cat P -qqq -n 1
# a format, a condition or a topic as the value
kafkalog cat P --output-format csv -> kafkalog export PATH -o orders-0.csv
kafkalog cat P --output-format json -> --json
kafkalog convert P -o c --exclude 'key == k' -> --drop 'key == k'
kafkalog convert D -o c --exclude orders -> --exclude-topics orders
# an output without its option
kafkalog report D report.html -> kafkalog report PATH -o report.html
kafkalog groups D lag.csv -> kafkalog groups PATH -o lag.csv
kafkalog export D x.parquet -> kafkalog export PATH -o x.parquet
kafkalog export x.parquet D -> kafkalog export PATH -o x.parquet
kafkalog convert P nowhere -> kafkalog convert PATH -o nowhere
kafkalog load x.parquet y.parquet -> required: -o/--output: kafkalog load x.parquet y.parquet -o LOG_DIR --topic TOPIC
kafkalog tiered -> verify or restore
# a name in a query that is nearly there
kafkalog sql 'select * from order' D -> near "order"; did you mean orders?
kafkalog sql 'select offst from orders' D -> did you mean offset?
# Windows, and pipes
kafkalog cat /?
kafkalog ls -?
kafkalog cat - -> logs are read from files
"""
TRIES = """
# kcat, with all options in one message, and their values
kafkalog cat D -t orders -p 0 -o 1 -c 3 -f '%p %o %k\\n'
    -> kafkalog cat PATH -t orders -p 0 --start-offset 1 -n 3 --columns partition,offset,key
kafkalog cat D -t orders -f '%t [%p] %o: %k = %s\\n' -n 3
    -> kafkalog cat PATH -t orders --columns topic,partition,offset,key,value -n 3
kafkalog cat D -t orders -c5 -e -q -> kafkalog cat PATH -t orders -n 5 -q
kafkalog -C -b h:9092 -t orders -o -2 D -> kafkalog cat -t orders --tail 2 PATH
kafkalog -Q -t orders:0:1750000000000 D -> kafkalog lookup -t orders -p 0 --timestamp 1750000000000 PATH
kafkalog cat D -t orders -s value=string -s key=string
    -> kafkalog cat PATH -t orders --value-format utf8 --key-format utf8
# Kafka's consumer
kafkalog cat D --topic orders --from-beginning --max-messages 4 -> kafkalog cat PATH --topics orders -n 4
kafkalog cat D --topic orders --property print.key=true --property print.headers=true
    -> kafkalog cat PATH --topics orders --columns key,headers,value
kafkalog console-consumer D --topic orders --from-beginning --partition 0
    -> kafkalog cat PATH -t orders --partitions 0
kafkalog consume D -t orders -p 0 --max-messages 5 -> kafkalog cat PATH -t orders -p 0 -n 5
# times
kafkalog cat D --since 2020-01-01 --until '2034-01-01 10:00'
    -> kafkalog cat PATH --start-timestamp 2020-01-01 --end-timestamp '2034-01-01 10:00'
kafkalog cat D --since '2 hours ago' --until now -> kafkalog cat PATH --start-timestamp -2h --end-timestamp now
kafkalog cat D --start-timestamp 2020-01-01 --end-timestamp '2034-01-01 10:00'
kafkalog get-offsets D --topic orders --time -1 -> kafkalog lookup PATH -t orders --timestamp latest
kafkalog offsets D -t orders --timestamp 1700000000000 -> kafkalog lookup PATH -t orders --timestamp 1700000000000
kafkalog cat P --offsets 1:3 --format csv -> kafkalog export PATH --start-offset 1 --end-offset 3 -o orders-0.csv
# counts and tables
kafkalog count D -t orders --by key --top 10
    -> kafkalog sql 'select "key", count(*) as n from orders group by all order by n desc limit 10' PATH
kafkalog count D --by topic -> kafkalog sql 'select "topic", count(*) as n from records group by all' PATH
kafkalog cat D -t orders --filter 'key == k' --count -> kafkalog export PATH -t orders --filter 'key == k' --dry-run
kafkalog cat D -t orders -n 2 --format csv -> kafkalog export PATH -t orders -n 2 -o orders.csv
kafkalog export D orders --to csv -> kafkalog export PATH -t orders --format csv -o -
kafkalog ls -lh D --sort size -> kafkalog space PATH
kafkalog load out.parquet --topic orders --key key -o s81 -> --key-column key
kafkalog export D -t orders -o vf.parquet --value json -> -o vf.parquet --value-format json
kafkalog cat D -t orders --key utf8 -> --key-format utf8
kafkalog restore D --to 2026-11-28T12:00:00Z -o back
    -> export PATH --end-timestamp 2026-11-28T12:00:00Z -o FILE.parquet, then kafkalog load FILE.parquet -o back
kafkalog restore D -o back2 -> kafkalog boot PATH -o back2
kafkalog write out.parquet -t orders -o new2 -> kafkalog load out.parquet -o new2 --topic orders
kafkalog groups D --reset-offsets --to-earliest -> --reset-offsets, --to-earliest: groups are only read here
kafkalog tail -f P --lines 3 -> kafkalog cat -f PATH --tail 3
kafkalog convert P --codec gzip --level 9 -o gz -> kafkalog convert PATH --compression gzip --compression-level 9 -o gz
kafkalog topics --list --bootstrap-server x D -> use kafkalog ls PATH
kafkalog s3 ls s3://b -> use kafkalog ls s3://b, such
kafkalog logs --since 1h D -> kafkalog cat PATH --start-timestamp -1h
kafkalog value_counts D -> count(*)
kafkalog stats D -t orders -> kafkalog batches PATH -t orders --summary
kafkalog -L D -> kafkalog ls PATH
# topics
kafkalog cat D orders -> kafkalog cat PATH -t orders
kafkalog ls D --topics -> kafkalog ls PATH
kafkalog metadata D --topics -> kafkalog metadata PATH --show topics
kafkalog delete-topic D orders -> kafkalog salvage PATH -o DIR -T orders
# verbs after a noun
kafkalog transactions find-hanging D
kafkalog transactions D find-hanging
kafkalog groups D list
kafkalog groups list D
kafkalog topic list D -> kafkalog ls PATH
kafkalog topic consume orders D -n 2 -> kafkalog cat PATH -t orders -n 2
kafkalog index rebuild P -> kafkalog reindex PATH --in-place
kafkalog index check D -> kafkalog verify PATH
# what writes
kafkalog truncate P --to-offset 100 -> kafkalog truncate PATH --to-offset 100 --dry-run
kafkalog convert P c49 --codec zstd -> kafkalog convert PATH --compression zstd -o c49
kafkalog undelete disk.img -o s83 --list -> kafkalog undelete disk.img -o s83 --dry-run
"""
DOOR = """
# two letters that changed places
kafkalog cta D -t orders -> did you mean kafkalog cat PATH -t orders
# columns and fields
kafkalog cat D --filter 'ofset == 3' -> did you mean 'offset'? (see
kafkalog cat D --columns vlaue -> did you mean 'value'? (see
kafkalog cat D --filter 'user == x' -> a field of JSON values is value.user, with --value-format json
kafkalog cat D --filter 'value.total > 5' -> add --value-format json
# a partition as a topic
kafkalog cat D -t orders-0 -> the partition is -t orders -p 0
# stdout
kafkalog export D -o /dev/stdout --format csv
kafkalog export D -o /dev/stdout -> stdout needs --format
kafkalog groups D -o - -> leave out -o -: groups prints to stdout
kafkalog salvage D -o /dev/stdout -> which only export writes to
kafkalog groups D -o g.xml -> end g.xml in .jsonl or .csv
# other shells, and several queries
kafkalog sql D .tables
kafkalog sql '.schema orders' D
kafkalog sql D .mode -> is no query
kafkalog sql 'select 1; select 2' D -> 2 queries: run one at a time
kafkalog sql 'create temp view x as select 1; select * from x;' D
# options of pandas
kafkalog cat D -t orders --group-by key -> kafkalog sql 'select key, count(*) from orders group by all' PATH
kafkalog describe D --include all -> use kafkalog ls PATH, or
kafkalog load out.parquet -o new --topic t --sep ';' -> the delimiter is found in the first line
kafkalog load out.parquet -o new --topic t --header 0 -> the first line has the names
kafkalog load out.parquet -o new --topic t --sort key -> records keep the order of the file
kafkalog load --csv out.parquet -o new --topic t -> pass out.parquet without an option
kafkalog read_csv in.csv -> kafkalog load in.csv -o DIR --topic TOPIC
kafkalog load in.csv -> kafkalog load in.csv -o LOG_DIR --topic TOPIC
kafkalog compression-ratio D -> kafkalog space PATH --records
kafkalog cat D --value-format jsno -> did you mean json? (see
kafkalog load out.parquet -o new --topic t --value-format utf-8 -> did you mean utf8?
kafkalog convert D -o new --compression zstd:3 -> the level is --compression-level
kafkalog space D --what-if snapy -> did you mean snappy?
kafkalog cat D --columns 'key value' -> a comma separates columns: key,value
kafkalog sql 'selct * from orders' D -> did you mean select?
kafkalog index-stats D --plot -> --plot needs a value: --plot FILE
kafkalog trim P --before-timestamp yesterday --dry-run -> did you mean -1d?
kafkalog truncate P --to-offset -5 --dry-run -> such as 0 or 42, not '-5' (see
kafkalog groups D -t orders -> without both, all topics are listed
kafkalog cat D --value-format avro -> set --schemas, or a --schema (see
kafkalog export D -o new.x -> set --format, or use --partition-by for a directory
# values and places that were typed
kafkalog kafka-get-offsets --log-dir D --topic orders --time -1 -> kafkalog lookup PATH -t orders --timestamp latest
kafkalog kafka-transactions --list --log-dir D -> kafkalog transactions PATH
kafkalog delete-records D --topic orders --partition 0 --offset 1 -> trim PATH/orders-0 --before-offset 1 -o DIR
kafkalog trim D -p 0 --before-offset 1 -o new -> the path of one partition is PATH/TOPIC-N
kafkalog cp P new-copy -> kafkalog salvage PATH -o new-copy
kafkalog show D/orders-0@3 -> /orders-0 --start-offset 3 -n 1 (see
kafkalog cat D/orders-0@3 -> /orders-0 --start-offset 3 -n 1
kafkalog sql "select topic from 'dangling' group by 1" -> and at least one PATH
kafkalog sql 'select * from orderz' D -> records has all
kafkalog metadata-shell --snapshot __cluster_metadata-0/00000000000000000222-0000000001.checkpoint
    -> use kafkalog metadata __cluster_metadata-0
kafkalog cat D -t orders --header trace=t2 -> --filter 'headers.trace == t2'
kafkalog inspect D/orders-0/x.index -> use kafkalog dump
kafkalog cat D -t orders --value-format json --fields key,fruit -n 2
    -> kafkalog cat PATH -t orders --value-format json --columns key,value.fruit -n 2
kafkalog cat D -t orders --avro user.avsc -n 2 -> --value-format avro --schema user.avsc -n 2
# forms and summaries
kafkalog cat D -t orders -o json -> use --json: kafkalog cat PATH -t orders --json
kafkalog cat D -t orders -o csv -> kafkalog export PATH -t orders -o orders.csv
kafkalog ls D -o wide -> kafkalog ls PATH
kafkalog ls --human-readable --summarize D -> kafkalog ls PATH
kafkalog diff --stat D D -> kafkalog diff --content PATH PATH
kafkalog log --oneline P -> kafkalog batches PATH for its batches
kafkalog fsck -n D -> leave it out: verify only reads: kafkalog verify PATH
kafkalog groups D --dry-run -> leave it out: groups only reads
# places
kafkalog ls '' -> the path is empty: name a log dir
kafkalog ls dangling -> it is a link to nowhere, which does not exist
kafkalog ls 00000000000000000000.log -> has the name of a segment, but it is a directory
"""
OPERATOR = """
# searches in keys and values, with the pattern
kafkalog grep -i KEY D -> kafkalog cat PATH --filter 'key matches "(?i)KEY" or value matches "(?i)KEY"'
kafkalog grep -E 'ban|pl' D -> kafkalog cat PATH --filter 'key matches "ban|pl" or value matches "ban|pl"'
kafkalog grep 'a b' D orders -> kafkalog cat PATH -t orders --filter 'key contains "a b" or value contains "a b"'
kafkalog fgrep 'a|b' D -> 'key contains "a|b" or value contains "a|b"'
kafkalog grep -m 3 -w k P -> --filter 'key matches "\\b(?:k)\\b" or
kafkalog cat D -t orders -E 'ban|pl'
    -> kafkalog cat PATH -t orders --filter 'key matches "ban|pl" or value matches "ban|pl"'
# the record at an offset
kafkalog get D orders 0 3 -> kafkalog cat PATH -t orders -p 0 --filter 'offset == 3'
kafkalog get D orders-0 3 -> kafkalog cat PATH -t orders -p 0 --filter 'offset == 3'
kafkalog get D -t orders -p 0 --offset 3 -> kafkalog cat PATH -t orders -p 0 --filter 'offset == 3'
kafkalog get P 3 -> kafkalog cat PATH --filter 'offset == 3'
kafkalog get D orders 3 -> kafkalog cat PATH -t orders --filter 'offset == 3' (or --filter 'key == 3')
kafkalog get D 'a b' -> kafkalog cat PATH --filter 'key == "a b"'
# the newest records
kafkalog cat D -t orders --reverse -n 5 -> kafkalog sql 'select * from orders order by timestamp desc limit 5' PATH
kafkalog newest D -t orders -> kafkalog sql 'select * from orders order by timestamp desc limit 10' PATH
kafkalog top D -t orders
    -> kafkalog sql 'select key, count(*) as n from orders group by all order by n desc limit 10' PATH
kafkalog top D -t orders --by offset
    -> 'select "offset", count(*) as n from orders group by all order by n desc limit 10'
# ages and times
kafkalog retention D --older-than 7d -> kafkalog trim PATH --before-timestamp -7d -o DIR
kafkalog expire D --days 7 -o kept -> kafkalog trim PATH --before-timestamp -7d -o kept
kafkalog trim D --older-than 7d -> kafkalog trim PATH --before-timestamp -7d --dry-run
kafkalog cat D -S 2026-11-29 -U 2026-11-30
    -> kafkalog cat PATH --start-timestamp 2026-11-29 --end-timestamp 2026-11-30
kafkalog cat P -o 1:3 -> kafkalog cat PATH --start-offset 1 --end-offset 3
# nouns, queries and shells
kafkalog groups describe g D -> no group 'g' here; there are none
kafkalog group describe g D -> no group 'g' here; there are none
kafkalog metadata D topics -> kafkalog metadata PATH --show topics
kafkalog D 'select count(*) from records' -> kafkalog sql 'select count(*) from records' PATH
kafkalog diff -r D D -> kafkalog diff --content PATH PATH
kafkalog completion bash
kafkalog repair D --dry-run -> kafkalog recover PATH --dry-run
# a format as an option, with the file if one was typed
kafkalog export D -t orders --jsonl -> use -o orders.jsonl: kafkalog export PATH -t orders -o orders.jsonl
kafkalog export D -t orders --csv -> kafkalog export PATH -t orders -o orders.csv
kafkalog export D -t orders --parquet -> kafkalog export PATH -t orders -o orders.parquet
kafkalog export D -t orders --jsonl mine.jsonl -> kafkalog export PATH -t orders -o mine.jsonl
kafkalog export D -t orders --arrow -o mine.x -> kafkalog export PATH -t orders --format arrow -o mine.x
# records to delete by their keys; retention with the topic and the limit
kafkalog delete-records D -t orders --key k-1 -> use kafkalog convert PATH -t orders -o DIR --drop 'key == k-1'
kafkalog delete-records D -t orders -p 0 --key k-1 -> convert PATH -t orders -o DIR --drop 'key == k-1' -p 0
kafkalog delete-records D -t orders --offset 3 -> use kafkalog trim PATH -t orders --before-offset 3 -o DIR
kafkalog retention D -t orders --retention-ms 86400000
    -> use kafkalog trim PATH -t orders --retention-ms 86400000 -o DIR
kafkalog retention D --retention-bytes 1000 -o new -> use kafkalog trim PATH --retention-bytes 1000 -o new
kafkalog expire D -t orders --days 7 -> use kafkalog trim PATH -t orders --before-timestamp -7d -o DIR
# options that are left out, or are others here
kafkalog ls D -lhS -> kafkalog space PATH, which sorts by size
kafkalog ls -S D -t orders -> kafkalog space PATH -t orders, which sorts by size
kafkalog dump P --batches -> leave it out: batches are printed: kafkalog dump PATH/*.log
kafkalog dump S --batches -> leave it out: batches are printed: kafkalog dump PATH
kafkalog boot D --broker-id 1 -o new-cluster
    -> leave it out: nodes have the ids 1 to N, or those of --nodes 1@HOST:PORT: kafkalog boot PATH -o new-cluster
kafkalog boot D --node-id=1 -o new-cluster -> kafkalog boot PATH -o new-cluster
kafkalog transactions D --find-hanging -> use --hanging: kafkalog transactions PATH --hanging
kafkalog schemas D --subject a --version latest
    -> leave it out: all versions are listed: kafkalog schemas PATH --subjects a
# what is suggested works for the path
kafkalog info S -> use kafkalog ls PATH (see
kafkalog topics D --describe -> use kafkalog ls PATH (see
kafkalog topics D/cluster -> use kafkalog ls PATH, or kafkalog metadata PATH --show topics for their settings
kafkalog metadata-shell D/cluster ls /topics -> use kafkalog metadata PATH --show topics (see
kafkalog metadata-shell --snapshot __cluster_metadata-0/00000000000000000222-0000000001.checkpoint cat /image/acls
    -> use kafkalog metadata __cluster_metadata-0 --show acls
# what has no counterpart is named
kafkalog watch D --interval 77 -> kafkalog cat PATH --follow --tail 0; left out: --interval 77
kafkalog count D --key k-77 --offset 4711 -> left out: --key k-77, --offset 4711
"""
ROUND_9 = """
# sqlite3 and DuckDB
kafkalog -c 'select 1' D -> use kafkalog sql -c 'select 1' PATH
kafkalog sql -line D 'select 1' -> the first line has the names; --csv, --json or -o FILE choose another form: kafkalog
kafkalog sql D -f q.sql -> give the query itself: -c "$(cat FILE)"
kafkalog sql --readonly D 'select 1' -> is never changed without --in-place: kafkalog sql PATH 'select 1'
kafkalog sql D 'delete from orders' -> -o DIR --drop 'COLUMN OP VALUE' (drop=) leaves
kafkalog sql D 'drop table orders' -> queries only read (see
# parquet-tools
kafkalog schema P -> use kafkalog sql 'describe records' PATH for the columns
kafkalog column-index P -> use kafkalog index-stats PATH
# Conduktor and AKHQ
kafkalog browse D orders -> use kafkalog cat PATH -t orders
kafkalog topics D --search ord -> use kafkalog ls PATH -t '*ord*'
kafkalog produce D -t orders -k a -v b -> left out:
kafkalog data D -t orders --sort newest -> kafkalog cat PATH -t orders
kafkalog nodes D/cluster -> use kafkalog metadata PATH
kafkalog export-topic D orders -> use kafkalog export PATH -t orders -o out.parquet
kafkalog empty-topic D orders -> use kafkalog trim PATH -t orders --before-timestamp now -o DIR, which keeps the last
kafkalog increase-partitions D orders 12 -> kafkalog load FILE.parquet -o DIR --topic NAME --partitions N; left out: 12
kafkalog copy-topic D orders orders2 -> kafkalog export PATH -t orders --isolation-level read_committed -o FILE.parquet
kafkalog cat D -t orders --key-contains k -> kafkalog cat PATH -t orders --filter 'key contains k'
kafkalog cat D -t orders --jsonpath '$.total' -> --value-format json --columns value.FIELD
kafkalog cat D -t orders --filter '$.total > 50' -> is 'value.total > 50', with --value-format json
kafkalog cat D --filter 'offset > 3 & offset < 5' -> '&' joins no conditions; write and
kafkalog cat D --filter 'key == a | key == b' -> '|' joins no conditions; write or
# pg_dump, zfs, btrfs
kafkalog dumpall D -> use kafkalog export PATH -o out.parquet
kafkalog btrfs check D
kafkalog scrub status D -> use kafkalog verify PATH
kafkalog df -h D -> use kafkalog space PATH (see
kafkalog zpool status D -> use kafkalog ls PATH, or kafkalog report PATH
kafkalog send D -> use kafkalog salvage PATH -o DIR
kafkalog defragment D -> use kafkalog compact PATH -o DIR
kafkalog iostat D -> use kafkalog verify PATH, with time before it
# commands that nothing has: those whose summary has the word, or all by job
kafkalog mount D -> no command 'mount'; the commands are below (see kafkalog -h)
kafkalog codecs-of D -> kafkalog batches PATH --summary
kafkalog aborted-ends D -> about 'ends' there are kafkalog recover, kafkalog truncate
kafkalog acl-list D/cluster -> kafkalog metadata
kafkalog savings D -> about 'savings' there is kafkalog space (see
"""
ROUND_8 = """
# partitions as kcat and URLs write them
kafkalog cat D orders:0 -f '%o %k %s\\n' -> kafkalog cat PATH -t orders -p 0 --columns offset,key,value
kafkalog cat D orders/0 -> use -t orders -p 0 for the partition: kafkalog cat PATH -t orders -p 0
kafkalog verify D orders-0 -> kafkalog verify PATH -t orders -p 0
kafkalog metadata D orders:0 -> /orders-0 for the partition: kafkalog metadata
kafkalog trim D orders-0 --before-offset 3 --dry-run -> the partition is
kafkalog cat D -t orders:0 -> the partition is -t orders -p 0
kafkalog cat D 'ord*' -n 1 -> kafkalog cat PATH -t 'ord*' -n 1
# options that list states and limit lines
kafkalog transactions D --state ongoing -> use --open for those that are open, --hanging for those that hang
kafkalog dump --files S --print-data-log --max 5 -> of records, kafkalog cat PATH -n 5): kafkalog dump --files PATH
kafkalog bench D -> use kafkalog verify PATH, with time before it
kafkalog du -h D
kafkalog diff D D -> kafkalog diff --content
kafkalog cat D -t orders --count -> use kafkalog export PATH -t orders --dry-run (it counts records)
# lines of text, and a directory in a query
kafkalog produce -t lines -K: -o new2 -> --topic lines (FILE is Parquet, Arrow, CSV or JSON lines); left out: -K:
kafkalog load notes.txt -o new2 --topic lines -K: -> jq -Rc 'capture("(?<key>[^:]*):(?<value>.*)")' FILE > lines.jsonl
kafkalog load notes.txt -o new2 --topic lines -> lines of text become JSON lines with jq -Rc '{value: .}' notes.txt
kafkalog sql 'select topic from cluster' -> kafkalog sql 'select topic from records' cluster
kafkalog cat D --filter 'ts > 5' -> use timestamp (see
"""
UNKNOWN_OPTIONS = """
# the whole line, with what else it needs
kafkalog boot D --port 9092 -> kafkalog boot PATH --listeners 127.0.0.1:9092 -o DIR (see
kafkalog boot D -> add -o/--output, --rescue-quorum or --dry-run: kafkalog boot PATH -o DIR (see
kafkalog diff D D -t orders -> -t orders --content (see
kafkalog export D --decode json -> use --value-format json: kafkalog export PATH --value-format json --dry-run (see
kafkalog groups --describe --all-groups --log-dir D
    -> leave out --describe, --all-groups (all groups are listed; add --members): kafkalog groups PATH (see
kafkalog load x.jsonl -t fruit -> use --topic fruit: kafkalog load x.jsonl --topic fruit -o LOG_DIR (see
kafkalog cat D --max-lines 4 -> use -n 4: kafkalog cat PATH -n 4 (see
kafkalog cat D --column-bytes 4 -> about 'column' there is --columns
# options with a word of what was typed in their names, or else in their help
kafkalog transactions D --find-open -> about 'open' there is --open (see
kafkalog cat D --min-timestamp 5 -> about 'timestamp' there are --start-timestamp, --end-timestamp (see
kafkalog trim P --log-start-offset 5 -o new -> about 'offset' there is --before-offset (see
kafkalog load in.csv -o new --timestamp-field ts -> about 'timestamp' there are --timestamp-column, --truncate
kafkalog cat D --schema-id 5 -> an option of kafkalog load; about 'schema id' there are --id-size, --schema
kafkalog boot D -o new --verify-it -> the help of --dry-run has the word 'verify' (see
kafkalog ls D --min-size 5 -> the help of --bytes has the word 'size' (see
kafkalog diff D D --keys -> the help of --ignore has the word 'keys' (see
# another command has it, or none
kafkalog salvage D -o new --keep-going -> an option of kafkalog dump; those of kafkalog salvage are below (see
kafkalog compact P -o new --dirty-ratio 0.5 -> its options are below (see
kafkalog cat D --frob 5 --zap -c 3 -> no options --frob, --zap, -c; --frob, --zap: its options are below; -c: use -n 3
"""
ROUND_10 = """
kafkalog get D orders:0:2 -> kafkalog cat PATH -t orders -p 0 --filter 'offset == 2' (see
kafkalog get D orders-0@2 -> kafkalog cat PATH -t orders -p 0 --filter 'offset == 2' (see
kafkalog cat D orders:0:2 -> kafkalog cat PATH -t orders -p 0 --start-offset 2 -n 1
kafkalog cat D --between yesterday now -> kafkalog cat PATH --start-timestamp -1d --end-timestamp now
kafkalog cat D --between 2026-11-29 2026-11-30 -> --start-timestamp 2026-11-29 --end-timestamp 2026-11-30
kafkalog cat D --between 1 3 -> --start-offset 1 --end-offset 3, which leaves out 3 itself: kafkalog cat PATH
kafkalog cat D -c partition,offset --format tsv -> -c: use --columns partition,offset; --format: use kafkalog export
kafkalog tail -F P -n 2 -> kafkalog cat --follow PATH --tail 2
kafkalog cat D --value-only -0 -> kafkalog cat PATH --columns value
kafkalog cat D --tombstones -> kafkalog cat PATH --filter 'value is null'
kafkalog cat D -t orders --jq .value.fruit -> kafkalog cat PATH -t orders --json --value-format json | jq .value.fruit
kafkalog salvage D --in-place -> use -o DIR: PATH is never changed, this command makes a copy
kafkalog hexdump S --offset 100 -> xxd -s N PATH prints the bytes there
kafkalog checksum D P -> kafkalog diff --content PATH
kafkalog lag D --max 10 -> kafkalog groups PATH --json | jq -c 'select(.lag > 10)'
kafkalog repartition D -t orders --partitions 6 -o six -> -o six --topic NAME --partitions 6 (see
kafkalog split D -t orders --partitions 6 -o six -> -o six --topic NAME --partitions 6 (see
kafkalog repartition D -t orders -n 6 -o six -> -o FILE.parquet, then kafkalog load
kafkalog groups D --csv -> kafkalog groups PATH -o out.csv
kafkalog groups D --format csv -> kafkalog groups PATH -o out.csv
kafkalog groups D --export csv -> kafkalog groups PATH -o out.csv
kafkalog load in.csv -o new --topic t --timestamp ts -> --timestamp-column ts
kafkalog cat D --filter 'headers["x-id"] == "abc"' -> a header is 'headers.x-id == "abc"'
kafkalog kubernetes D -> kafkalog metadata PATH --as strimzi --cluster NAME
kafkalog export D -o x.duckdb -> write x.parquet, which DuckDB reads
kafkalog dump S --offset 5 -> option of kafkalog lookup
kafkalog cat D --fail -> the help of --on-corruption has the word 'fail'
kafkalog recover D 'key == a' -> ; recover takes no condition
kafkalog cat D ordres -> did you mean the topic orders? kafkalog cat PATH -t orders
kafkalog delete D -t orders --before-offset 3 -> -t orders --before-offset 3 -o DIR
kafkalog cat D --output yaml -> use --json
kafkalog tiered ls D -> kafkalog ls LOG_DIR --tiered URL
kafkalog ls tar://backup.tar.gz -> tar://DIRECTORY::backup.tar.gz
kafkalog help exit-codes
kafkalog recover D --inplace -> --in-place
kafkalog cat D --max-messages five -> use -n VALUE (five is none)
kafkalog export D -o x.tsv -> x.tsv: csv is written with commas; end the name in .csv
kafkalog sql "select headers['x'] from orders" D -> map_from_entries(headers)['name']
"""
TABLES = ROUND_10 + ROUND_9 + ROUND_8 + UNKNOWN_OPTIONS + OPERATOR + DOOR + COMMANDS + OTHER_TOOLS + MORE_MISTAKES
TABLES += FIRST_TRIES + KINDS + TRIES
SPARK_JOBS = ("scan", "verify", "reindex")


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """A log dir with a few topics, and what the guesses call it and its parts."""
    tmp_path = tmp_path_factory.mktemp("names")
    directory = tmp_path / "log"
    for topic in ("orders", "orders-changelog", "payments"):
        stamps = [1_750_000_000_000 + number for number in range(5)]
        table = {"key": [b"k"] * 5, "value": [b"v"] * 5, "timestamp": stamps}
        kafkalog.write_table(table, directory, topic=topic)
    partition = directory / "orders-0"
    segment = next(partition.glob("*.log"))
    with segment.open("rb") as file:
        places = {"d": directory, "p": partition, "s": segment, "file": file, "out": tmp_path}
        (tmp_path / "cluster" / "__cluster_metadata-0").mkdir(parents=True)
        (tmp_path / "dangling").symlink_to("nowhere")
        (tmp_path / "00000000000000000000.log").mkdir()
        (tmp_path / "__cluster_metadata-0").mkdir()
        (tmp_path / "__cluster_metadata-0" / "00000000000000000222-0000000001.checkpoint").touch()
        yield {**places, "kafkalog": kafkalog, "datetime": datetime, "np": np, "pa": pa}


def guesses(text):
    text = text.replace("\n    -> ", " -> ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(guess, word) for guess, _, word in (line.partition(" -> ") for line in lines)]


def is_right(guess, word, names):
    """Whether a guess works, or raises an error that holds the word."""
    try:
        eval(guess, dict(names))
    except Exception as error:
        return bool(word) and word in str(error)
    return not word


@pytest.mark.filterwarnings("ignore::kafkalog.ConfigWarning")
@pytest.mark.parametrize(("guess", "word"), guesses(PYTHON + PYTHON_OF_OTHER_TOOLS + SECOND_DAY))
def test_a_call_in_python_is_right_or_named(guess, word, names):
    assert is_right(guess, word, names)


@pytest.mark.parametrize(
    "call",
    [
        "kafkalog.connect", "kafkalog.open(p).read", "kafkalog.read_numpy(p).group_of",
        "kafkalog.read_numpy(p).values.nbytes", "kafkalog.format.TopicPartition('a', 1).offset",
    ],
)  # fmt: skip
def test_python_adds_no_similar_name_to_what_is_meant(call, names):
    with pytest.raises(AttributeError, match=r"; (use|it has|did you mean|there are) ") as error:
        eval(call, dict(names))
    assert (error.value.obj, error.value.name) == (None, call.rpartition(".")[2])
    assert "Did you mean" not in "".join(traceback.format_exception(error.value))


@pytest.mark.parametrize("call", RESULTS.split("\n")[1:-1])
def test_every_result_is_a_table_a_dict_and_a_view(call, names):
    if ".sql(" in call:
        pytest.importorskip("duckdb")
    result = eval(call, dict(names))
    table = result.to_arrow()
    assert isinstance(table, pa.Table)
    assert isinstance(result.to_dict(), dict | list)
    assert hasattr(result, "_repr_html_") or call.startswith(("kafkalog.diff", "kafkalog.sql"))
    if pytest.importorskip("pandas"):
        assert len(result.to_pandas()) == table.num_rows


@pytest.mark.parametrize(("guess", "word"), guesses(TABLES))
def test_a_command_is_right_or_named(guess, word, names, capsys, monkeypatch):
    monkeypatch.chdir(names["out"])
    for name in ("out.parquet", "disk.img", "notes.txt", "backup.tgz"):
        (names["out"] / name).touch()
    places = {
        "D": names["d"],
        **{f"D/{one}": names["d"] / one for one in ("orders", "orders-0@3")},
        "D/orders-7": names["d"] / "orders-7",
        "D/cluster": names["out"] / "cluster",
        "P": names["p"],
        "S": names["s"],
    }
    places["--file=P"] = f"--file={names['p']}"
    typed = [str(places.get(one, one)) for one in shlex.split(guess)[1:]]
    code = main(typed)
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert (code == 0) == (not word)
    # what to type has the path that was typed
    paths = [one for one in typed if one in map(str, places.values())]
    assert (word.replace("PATH", paths[0]) if paths else word) in err
    scratch = names["out"] / "scratch"
    scratch.mkdir(exist_ok=True)
    monkeypatch.chdir(scratch)
    for line in command_lines(err, scratch) - LINES_SEEN:
        LINES_SEEN.add(line)
        code = main(list(line))
        # what it names may not be there, but the command line is a valid one
        assert code != 2, f"kafkalog {shlex.join(line)}: {capsys.readouterr().err}"


@pytest.mark.parametrize(
    "words", ["D -t orders --key k-77 --offset 4711", pytest.param("'a b' P --as x/y.z", marks=pytest.mark.slow)]
)
def test_each_word_that_is_typed_is_in_the_answer_of_each_lead(words, names):
    places = {"D": str(names["d"]), "P": str(names["p"])}
    typed = [places.get(word, word) for word in shlex.split(words)]
    values = [word for word in typed if not word.startswith("-")]
    leads = sorted(word for word, lead in commands().items() if not lead.line.startswith("--"))
    for word in leads if THOROUGH else leads[::4]:
        argv = _translated([word, *typed])
        try:
            build_parser(argv).parse_args(argv)
        except Misuse as error:
            text = error.text(_that_works(error))
        else:
            continue  # it works
        if not commands()[word].is_same:
            missing = [value for value in values if shown([value]) not in text and value not in text]
            assert not missing, (word, missing, text)


LINES_SEEN = set()
VALUES = {"N": "1", "TIME": "now", "MS": "1"}
AFTER_A_LINE = re.compile(
    r", (?:or|and|then|with|which|for|such|but|into|where|kafkalog|a copy)\b"
    r"| (?:for|to|makes|reads|writes|saves|lists|has|have|are) |: |, |\? |\?$| \| |\n"
)


def command_lines(err, scratch):
    """The command lines in a message, with something in the places that are left open; none of those that wait."""
    found = set()
    quoted = []
    message = re.sub(r" \(see \S.*\)\n", "", err.partition("error: ")[2])
    masked = re.sub(r"'[^']*'|\"[^\"]*\"", lambda one: f"\1{quoted.append(one[0]) or len(quoted) - 1}\1", message)
    for text in re.findall(r"kafkalog ([^;()]+)", masked):
        text = AFTER_A_LINE.split(text)[0]
        text = re.sub("\1([0-9]+)\1", lambda one: quoted[int(one[1])], text)
        text = text.replace("TOPIC", "orders").replace("WORD", "k")
        line = [VALUES.get(word, word) for word in shlex.split(text)]
        line = [str(scratch / f"{len(LINES_SEEN)}") if word in ("DIR", "TABLE") else word for word in line]
        is_open = any(re.search(r"\b[A-Z]{2,}\b|\.\.\.", word) for word in line if "." not in word or "/" not in word)
        # Avro needs schemas, which are not there; some lines only name a command
        is_other = (
            not {"--follow", "-f", "--in-place", "--install", "avro", "-", "reads"}.isdisjoint(line) or "://" in text
        )
        if len(line) > 1 and not is_open and not is_other:
            found.add(tuple(line))
    return found


def test_jobs_of_spark_have_the_names_and_options_of_the_functions():
    for name in SPARK_JOBS:
        job, function = getattr(kafkalog.spark, name), getattr(kafkalog, name)
        there = inspect.signature(job).parameters
        assert list(there)[:2] == ["spark", "path"]
        if name != "scan":
            missing = set(inspect.signature(function).parameters) - set(there)
            own = {"options", "threads", "progress", "on_file", "memory_map"}
            # values are decoded by the data source
            assert missing <= own | {"decode", "schemas", "schema_context"}


@pytest.mark.parametrize(
    "module", ["operations.exporting.export", "operations.verifying", "records", "cli.reading.cat"]
)
def test_a_function_is_callable_whatever_was_imported_before(module):
    import importlib

    importlib.import_module(f"kafkalog.{module}")
    for name in ("export", "verify", "cat", "ls", "scan", "load", "convert", "dump", "open"):
        assert callable(getattr(kafkalog, name))


def test_completion_shows_what_users_call_and_nothing_else():
    import kafkalog.operations.exporting.export

    shown = [name for name in dir(kafkalog) if not name.startswith("_")]
    assert set(shown) == {*kafkalog.__all__, "codec", "errors", "format", "functions", "spark", "types"}
