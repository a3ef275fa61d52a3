"""Words of other tools, and what to type here: for commands and functions, and for names in Python.

A word is here if somebody who knows kcat, Kafka's scripts, etcdctl, sst_dump, pandas, polars, pyarrow, DuckDB or the
shell tries it. The nearest of the valid words is suggested only if nothing is here, and only if it is very similar.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, get_args

from kafkalog.text import near, near_name

_COMMANDS: Final = """
head            = cat -n 10                                         | read_table(path, limit=10)
tail            = cat --tail 10                                     | scan(path).tail(10)
ll list dir liste auflisten = ls                                    | ls(path)
du disk-usage   = space                                             | space(path)
fsck check validate sanity-check verify-index verify-indexes check-index check-indexes prüfen pruefen überprüfen \
    = verify | verify(path)
query abfrage   = sql                                               | sql(query, path)
lag consumer-lag consumer-groups gruppen group = groups                                | groups(path)
dump-log dumplogsegments dumplog dump-log-segments = dump                             | dump("FILE.log")
version         = --version                                         | __version__
help man manual hilfe = --help                                            | __doc__
exit-codes exit-code exit-status return-codes error-codes = --help        | __doc__
completion completions autocomplete shell-completion = --completion       | __all__
topics list-topics topic-list tree > kafkalog ls PATH, or kafkalog metadata PATH --show topics for their settings \
    | ls(path), or open_log_dir(path).topics
info describe summary summarize status stat show-topics inspect file meta footer overview bericht zeigen \
    > kafkalog ls PATH, or kafkalog report PATH \
    | ls(path), or report(path)
partitions list-partitions segments log-dirs files > kafkalog ls PATH, with -s for segments | ls(path)
offsets get-offsets offset-shell getoffsetshell endoffsets > kafkalog groups PATH for committed offsets, kafkalog ls \
    PATH for the ends of logs | groups(path) for committed offsets, ls(path) for the ends of logs
grep search rg egrep fgrep zgrep ag ack match suchen finden \
    > kafkalog cat PATH --filter 'key contains WORD or value contains WORD' \
    | read_table(path, filters="key contains abc or value contains abc")
get where filter > kafkalog cat PATH --filter 'key == WORD' (or 'value contains WORD') \
    | read_table(path, filters="key == abc")
find seek locate > kafkalog lookup PATH --offset N, or kafkalog cat PATH --filter 'key == WORD' \
    | lookup(path, offset=42), or read_table(path, filters="key == abc")
read consume consumer console-consumer browse browser viewer data show print view less more messages records fetch \
    poll scan lesen anzeigen \
    > kafkalog cat PATH | cat(path), or read_table(path, topics="orders")
rewind skip seek-to-beginning > kafkalog cat PATH --start-offset N | scan(path, start_offset=42)
logs journalctl > kafkalog cat PATH | cat(path)
stats > kafkalog batches PATH --summary, or kafkalog space PATH --records \
    | batches(path), or space(path, records=True)
compression-ratio ratio > kafkalog space PATH --records, whose last line has it | space(path, records=True)
watch follow subscribe > kafkalog cat PATH --follow --tail 0 | scan(path)
select            > kafkalog sql 'select ...' PATH | sql(query, path)
duckdb sqlite3 sqlite psql connect execute exec > kafkalog sql 'select ...' PATH | sql(query, path)
count wc value-counts groupby count-rows num-rows num-records n-records n-rows rowcount row-count zählen \
    > kafkalog ls PATH (RECORDS), or kafkalog sql 'select count(*) from TOPIC' PATH \
    | scan(path).count_rows(), or ls(path) for each partition
schema describe-table dtypes \
    > kafkalog sql 'describe TOPIC' PATH for the columns, kafkalog schemas PATH for those of a \
    registry | schemas(path), or scan(path).schema for the columns
registry subjects > kafkalog schemas PATH | schemas(path)
df > kafkalog space PATH | read_pandas(path)
to-pandas pandas dataframe to-df > kafkalog export PATH -o out.parquet | read_pandas(path)
to-polars lazyframe lazy scan-pandas > kafkalog export PATH -o out.parquet | read_polars(path)
to-numpy numpy > kafkalog export PATH -o out.arrow | read_numpy(path)
table to-table > kafkalog cat PATH, or kafkalog sql 'select ...' PATH | read_table(path)
to-parquet parquet write-parquet save sink-parquet > kafkalog export PATH -o out.parquet | export(path, "out.parquet")
to-csv csv write-csv > kafkalog export PATH -o out.csv | export(path, "out.csv")
to-json json jsonl to-jsonl ndjson dump-json dump-jsonl \
    > kafkalog cat PATH --json, or kafkalog export PATH -o out.jsonl | export(path, "out.jsonl")
to-arrow arrow feather to-feather ipc > kafkalog export PATH -o out.arrow | read_table(path)
to-delta delta iceberg to-iceberg > kafkalog export PATH -o TABLE --format delta --resume \
    | export(path, output, format="delta", resume=True)
extract copy-out dumpall pg-dump pgdump pg-dumpall mysqldump unload export-topic \
    > kafkalog export PATH -o out.parquet | export(path, "out.parquet")
column-index page-index column-size bloom-filter > kafkalog index-stats PATH | index_stats(path)
bench benchmark iostat perf performance speed speedtest timeit throughput profile-read \
    > kafkalog verify PATH, with time before it: it reads and checks everything (docs/benchmarks.md has measurements) \
    | verify(path), which reads and checks everything
produce producer-perf-test console-producer append write import ingest insert put from-parquet from-csv \
    > kafkalog load FILE -o DIR --topic TOPIC (FILE is Parquet, Arrow, CSV or JSON lines) \
    | load(file, output, topic=name), or write_table(table, path, topic=name)
read-csv load-csv open-csv read-parquet load-parquet open-parquet > kafkalog load FILE -o DIR --topic TOPIC \
    | load(file, output, topic=name) to write a file as a log
anonymize anonymise pseudonymize redact mask > kafkalog convert PATH -o DIR --redact value=null --redact-where \
    'key == WORD' | convert(path, output, redact={"value": "null"})
erase delete del rm forget remove gdpr drop purge löschen \
    > kafkalog convert PATH -o DIR --drop 'key == WORD' (trim and truncate remove the ends of a log; \
    kafkalog salvage PATH -o DIR -T TOPIC makes a copy without a topic) \
    | convert(path, output, drop="key == abc")
upgrade migrate > kafkalog convert PATH -o DIR, to format v2 | convert(path, output)
decompress uncompress gunzip unzip zcat > kafkalog convert PATH -o DIR --compression none \
    | convert(path, output, compression="none")
recompress rewrite transform compress > kafkalog convert PATH -o DIR --compression zstd \
    | convert(path, output, compression="zstd")
cp copy clone backup send snapshot save-snapshot dd sync rsync scp kopieren sichern \
    > kafkalog salvage PATH -o DIR (verified), or cp -a \
    | salvage(path, output)
repair fix heal fsck-repair reparieren \
    > kafkalog verify PATH, whose next: line is the way to a log that a broker serves (kafkalog recover PATH --dry-run \
    for what a broker would cut at its start) | verify(path), whose next is the way to a log that a broker serves
rescue > kafkalog salvage PATH -o DIR | salvage(path, output)
carve photorec testdisk extundelete unrm recover-deleted undeleting > kafkalog undelete IMAGE -o DIR \
    | undelete(image, output)
restore restore-tiered wiederherstellen > kafkalog tiered restore URL -o DIR, or kafkalog boot PATH -o DIR, or \
    kafkalog load FILE -o DIR --topic TOPIC for an exported table \
    | restore_tiered(remote, output), or boot(path, output)
restore-to restore-at point-in-time pitr rewind time-travel \
    > kafkalog export PATH --end-timestamp TIME -o FILE.parquet, then kafkalog load FILE.parquet -o DIR --topic TOPIC \
    (boot has no end time) | export(path, "out.parquet", until=time), and kafkalog.load("out.parquet", output, \
    topic=name)
start serve server-start up bootstrap format storage run launch > kafkalog preflight PATH (what a start does), or \
    kafkalog boot PATH -o DIR (a log dir for a new cluster) | preflight(path), or boot(path, output)
read-time-index open-time-index load-time-index timeindex > kafkalog dump FILE.timeindex \
    | TimeIndex.open("FILE.timeindex")
read-txn-index read-transaction-index transaction-index txn-index txnindex aborted-transactions aborted-txns \
    > kafkalog dump FILE.txnindex, or kafkalog transactions PATH | TransactionIndex.open("FILE.txnindex")
read-producer-snapshot producer-snapshot read-snapshot open-snapshot load-snapshot \
    > kafkalog dump FILE.snapshot, or kafkalog producers PATH | ProducerSnapshot.open("FILE.snapshot")
write-index save-index write-time-index dump-index > kafkalog reindex PATH --in-place \
    | OffsetIndex.build(segment).tofile("new.index"), or reindex(path, in_place=True)
index indexes read-index open-index load-index show-index offset-index time-index > kafkalog dump FILE.index to \
    print one, kafkalog index-stats PATH to measure them, or kafkalog reindex PATH --in-place to rebuild them \
    | OffsetIndex.open("FILE.index"), or TimeIndex.open("FILE.timeindex")
rebuild rebuild-index rebuild-indexes reindex-all regenerate > kafkalog reindex PATH --in-place \
    | reindex(path, in_place=True), or index_stats(path) to measure them
build-index build-indexes make-index create-index new-index > kafkalog reindex PATH --in-place \
    | OffsetIndex.build(segment, index_interval_bytes=4096)
index-sanity-check > kafkalog verify PATH | verify(path)
log-cleaner cleaner clean vacuum compaction defrag defragment gc optimize > kafkalog compact PATH -o DIR \
    | compact(path, output=output)
empty-topic clear-topic truncate-topic wipe-topic purge-topic > kafkalog trim PATH -t TOPIC --before-timestamp now -o \
    DIR, which keeps the last segment of each partition \
    | trim(path, output=output, topics="orders", before_timestamp="now")
add-partitions increase-partitions repartition alter-topic partitions-add set-partitions \
    > kafkalog export PATH --isolation-level read_committed -o FILE.parquet, then kafkalog load FILE.parquet -o DIR \
    --topic NAME --partitions N | load(file, output, topic=name, partitions=12) of what export(path, file) wrote
delete-records > kafkalog trim PATH --before-offset N -o DIR \
    | trim("DIR/orders-0", output=output, before_offset=42)
retention expire prune > kafkalog trim PATH --retention-ms MS -o DIR \
    | trim(path, output=output, topics="orders", retention_ms=604800000)
chop rollback > kafkalog truncate PATH --to-offset N -o DIR \
    | truncate("DIR/orders-0", output=output, to_offset=42)
compare cmp comm replica-verification vergleichen \
    > kafkalog diff REPLICA REPLICA, or kafkalog diff --content A B \
    | diff("A/orders-0", "B/orders-0") for replicas, or comparing.content.compare(a, b) for log dirs
translate translate-offsets offset-translation remote-cluster-utils > kafkalog groups A --translate-to B | groups(path)
join combine > kafkalog merge REPLICA REPLICA -o DIR | merge(replicas, output)
concat concatenate > kafkalog merge REPLICA REPLICA -o DIR \
    | RecordColumns.concatenate([records, records]) for records, or merge(replicas, output) for replicas of a log
groups-list members member list-groups consumers describe-groups share-groups streams-groups \
    > kafkalog groups PATH --members | groups(path)
txn txns transaction hanging find-hanging > kafkalog transactions PATH | transactions(path)
config configs settings quotas brokers nodes controllers cluster metadata-shell metadata-quorum features \
    get-cluster-id \
    topic-configs > kafkalog metadata PATH | metadata(path)
kubernetes k8s strimzi helm manifests crd > kafkalog metadata PATH --as strimzi --cluster NAME, which prints the \
    manifests of topics and users | metadata(path)
acls acl list-acls > kafkalog metadata PATH --show acls | metadata(path)
users scram > kafkalog metadata PATH --show scram,quotas | metadata(path)
under-replicated under-replicated-partitions unavailable offline isr replicas leaders assignment assignments \
    > kafkalog metadata PATH --show partitions | metadata(path)
producer-ids producer > kafkalog producers PATH | producers(path)
leader-epoch leader-epochs leader-election > kafkalog epochs PATH | epochs(path)
remote tier tiered-storage > kafkalog tiered verify URL --log-dir PATH | verify_tiered(remote)
size sizes df storage-usage usage > kafkalog space PATH | space(path)
html dashboard health doctor diagnose ui serve-report > kafkalog report PATH -o report.html \
    | report(path).write("report.html")
batch batch-info dump-batches compression codecs properties > kafkalog batches PATH --summary | batches(path)
hexdump xxd od hd hex > kafkalog batches PATH for the positions of batches (xxd -s N FILE.log prints the bytes there), \
    or kafkalog dump FILE.log --print-data-log | batches(path), or dump("FILE.log")
raw strings zstreamdump dump-tree dump-super \
    > kafkalog dump FILE.log --print-data-log, or kafkalog batches PATH | dump("FILE.log")
crc32c crc32 > kafkalog verify PATH | codec.crc32c(data)
check-crcs crc-ok check-crc verify-crc verify-crcs crcs > kafkalog verify PATH \
    | codec.check_crcs(data) for batches in memory, or verify(path)
murmur2 murmur hash-key hash-keys partitioner partition-for partition-for-key partition-for-keys assign-partitions \
    > kafkalog load FILE -o DIR --topic TOPIC --partitions N --partitioner NAME | codec.partitions(keys, 12)
gaps offset-gaps missing-offsets find-gaps > kafkalog verify PATH | read_numpy(path).offset, and np.diff of it
varint varints > kafkalog dump FILE | codec.decode_varints(data), or codec.encode_varints(values)
writer log-writer segment-writer > kafkalog load FILE -o DIR --topic TOPIC | PartitionWriter("DIR/orders-0"), or \
    write_table(table, path, topic=name)
encode > kafkalog load FILE -o DIR --topic TOPIC | codec.encode(columns)
checksum checksums md5sum md5 sha256sum sha1sum digest > kafkalog verify PATH, or kafkalog diff --content A B for what \
    differs | verify(path), or comparing.content.compare(a, b) for what differs
damage corruption crc scrub verify-checksum integrity test lint sanity is-ok \
    > kafkalog verify PATH \
    | verify(path)
demo example test-data generate fixture quickstart > kafkalog sample DIR | sample(output)
sort uniq jq awk sed group-by > kafkalog sql 'select ...' PATH, or kafkalog cat PATH --json and a pipe \
    | sql(query, path)
top > kafkalog sql 'select key, count(*) as n from TOPIC group by all order by n desc limit 10' PATH | sql(query, path)
cut keys values timestamps headers columns > kafkalog cat PATH --columns offset,timestamp,key,value,headers \
    | read_table(path, columns=["offset", "key"])
tac reverse newest latest \
    > kafkalog sql 'select * from TOPIC order by timestamp desc limit 10' PATH (kafkalog cat PATH --tail 10 for the \
    last 10 of each partition, oldest first) | scan(path).tail(10)
tombstones nulls > kafkalog cat PATH --filter 'value is null' | read_table(path, filters="value is null")
dedupe dedup distinct compacted materialize ktable > kafkalog cat PATH --latest key | read_table(path, latest="key")
stream tailf > kafkalog cat PATH --follow --tail 0 | scan(path)
history changelog audit > kafkalog groups PATH --history | history(path, topics="__consumer_offsets")
explain plan > kafkalog cat PATH --explain | scan(path).explain()
analyze profile histogram distribution analysieren > kafkalog batches PATH --summary, or kafkalog space PATH --records \
    | batches(path), or space(path, records=True)
plot graph chart > kafkalog index-stats PATH --plot FILE, or kafkalog report PATH -o report.html \
    | index_stats(path), or report(path)
shell repl cli console prompt interactive > kafkalog sql 'select ...' PATH, or kafkalog ls PATH \
    | sql(query, path), or open(path)
web open endpoint endpoint-health alarm monitor > kafkalog report PATH -o report.html, or kafkalog ls PATH \
    | report(path), or open_log_dir(path)
avro protobuf > kafkalog cat PATH --value-format avro (or protobuf, json) \
    | read_table(path, value_format={"format": "avro", "schema": "order.avsc"}), or value_format="avro" with a registry
decode deserialize decode-values > kafkalog cat PATH --value-format json (or avro, protobuf) \
    | read_table(path, value_format="json"), or codec.decode(data) for bytes
replay mirror replicate install deploy inject > kafkalog load FILE -o LOG_DIR --install, into a stopped broker \
    | load(file, log_dir, topic=name, install=True)
split rotate roll segment resize > kafkalog convert PATH -o DIR --segment-bytes 100M \
    | convert(path, output, config=kafkalog.LogConfig(segment_bytes=104857600))
tar zip archive > kafkalog export PATH -o DIR, or tar -c PATH: files are read as they are | export(path, "out.parquet")
mv move relocate > kafkalog salvage PATH -o DIR (verified), or cp -a while no broker runs there \
    | salvage(path, output), or boot(path, output) for a broker
rename rename-topic copy-topic clone-topic topic-copy \
    > kafkalog export PATH --isolation-level read_committed -o FILE.parquet, then kafkalog load \
    FILE.parquet -o DIR --topic NAME | load(file, output, topic=name) of what export(path, file) wrote
kafka kafkactl rpk zfs zpool btrfs pool client kafka-client admin-client admin > kafkalog ls PATH | open(path)
reassign-partitions reassign preferred-replica-election alter-partitions create alter > kafkalog metadata PATH; a \
    running cluster is changed by Kafka's own scripts | metadata(path)
log > kafkalog cat PATH for its records, kafkalog batches PATH for its batches, or kafkalog ls PATH | open(path)
logdir logdirectory log-dir log-directory directory topic dataset reader log-reader file-reader log-file logfile \
    segment-file kafka-log-file > kafkalog ls PATH \
    | open(path)
iterate iter iter-records read-records iter-messages rows message record-batch consumer-record parse \
    > kafkalog cat PATH | cat(path)
from-numpy write-numpy write-pandas write-arrow write-records \
    from-pandas from-polars from-arrow from-records from-dict to-kafka to-log write-log \
    > kafkalog load FILE -o DIR --topic TOPIC | write_table(table, path, topic=name)
delete-topic delete-topics drop-topic drop-topics remove-topic rm-topic topic-delete topics-delete topic-remove \
    > kafkalog salvage PATH -o DIR -T TOPIC, a copy without it | salvage(path, output, topics="!name")
group-delete groups-delete group-reset groups-reset group-seek groups-reset-offsets reset-offsets \
    > kafkalog groups PATH; kafka-consumer-groups.sh changes them, in a running cluster | groups(path)
aws s3 gsutil gcloud az minio mc > kafkalog ls PATH, such as s3://BUCKET/KEY | ls("s3://bucket/path")
kcat kafkacat > kafkalog cat PATH -t TOPIC | cat(path)
"""
"""Words, ``=`` and the command line that they stand for, or ``>`` and what to type, ``|`` and the same in Python.

PATH and WORD stand for what was typed.
"""

_BOUNDS: Final = {
    ("start", "offset"): "offset start from_offset begin skiprows starting_offset startingOffsets",
    ("end", "offset"): "end to_offset stop ending_offset endingOffsets",
    ("start", "timestamp"): "start begin since start_time from_time after begin_time time",
    ("end", "timestamp"): "end stop until end_time before to_time",
}
"""The words for keyword arguments that are bounds of a scan, by the end and by what it is of."""

_KEYWORDS: Final = (
    "\n".join(f"{words} = {'_'.join(bound)}" for bound, words in _BOUNDS.items())
    + """
topic topic_name subscribe include = topics
partition partition_id = partitions
offsets offset_range = start_offset
tail last = > kafkalog.scan(path).tail(10)
follow watch = > kafkalog cat PATH --follow in a shell
committed only_committed uncommitted = isolation_level
encoding = value_format
engine dtype_backend as_pandas as_polars backend output_type return_type = > kafkalog.read_pandas(path), \
    kafkalog.read_polars(path) or kafkalog.read_table(path)
index index_col parse_dates names converters low_memory = > kafkalog.read_pandas(path), and pandas from there
mode = tiered > kafkalog.write_table(table, path, topic=name), which writes; open only reads
level compresslevel compress_level = compression_level
buffering compression_level = compression
exclude exclude_topics exclude_topic ignore skip_topics except_topics without = \
    topics > topics=["!orders"] to leave a topic out, or filters="topic != 'orders'"
partition_by partition_key shard_by = partitioner > partitions=N alone: records go by their keys, as Kafka's \
    partitioner has it; partitioner= names others
key key_column key_col id_column value_column value_col message_key = \
    partitioner > columns={"key": "id"}, with value_format="json" for the other columns
index sep delimiter delim quotechar quoting header line_terminator na_rep = \
    row_group_rows > kafkalog.read_table(path) and pyarrow.csv.write_csv; here it is commas, and a line of names
sort sort_by order_by orderby = > to_pandas() of the result and its sort_values(), or \
    kafkalog.sql("select * from records order by key", path)
fix repair heal autofix = indexes_only > the result's next, which is the way to a log that a broker serves: \
    kafkalog.reindex, kafkalog.salvage or kafkalog.boot
headers header = header_columns > a column headers of the table: for each record a list of {"key": "a", "value": b"1"}
headers header header_columns = \
    filters > columns=["headers.name"] for a table, or kafkalog.read_numpy(path).headers["name"]
key grep = filters > filters="key == abc"
mode overwrite append if_exists exist_ok force replace = \
    partitioner > another path or topic: partitions that exist are never changed
parameters parameter values bind binds args arguments = params
lazy = > to_polars().lazy(), or polars.scan_pyarrow_dataset(kafkalog.dataset(path)), which reads what is needed
nthreads = threads
filter query condition predicate where expression keep = filters
filter predicate query = drop
n nrows n_rows num_rows rows head max_records max_messages count take top row_limit = limit
usecols fields select cols column projection names = columns
time when at = timestamp
before = before_offset
before = before_timestamp
older_than age max_age days keep_days = before_timestamp
older_than age max_age days keep_days = retention_ms
to = to_offset
filesystem fs endpoint_url endpoint region credentials client = storage_options
remote remote_storage tier = tiered
value_deserializer value_type format fmt deserializer = value_format
key_deserializer key_type = key_format
registry schema_registry schema_registry_url = schemas
schema value_schema avro_schema schema_file avsc = \
    decode > value_format={"format": "avro", "schema": VALUE} for Avro (or protobuf, jsonschema), schemas= for a \
    registry, or value_format="json", which takes the types from the values
key_schema = decode > key_format={"format": "avro", "schema": VALUE}, or schemas= for a registry
out dest destination dst target to path output_path filename = output
dryrun simulate preview = dry_run
group group_id consumer_group = groups
codec compression_type = compression
chunksize chunk_size batchsize max_batch_size iterator = \
    binary_type > (batch.to_pandas() for batch in kafkalog.scan(path, batch_size=VALUE).to_batches())
batchsize max_batch_size = batch_size
topic topic_name topics partition partitions = producer_snapshot > the directory as the path, such as \
    kafkalog.PartitionWriter("DIR/orders-0")
bootstrap_servers bootstrap_server transactional_id client_id servers = producer_epoch > \
    kafkalog.write_table(table, path, topic=name), which writes files
message_type message_class message_name proto_class protobuf_class message = \
    value_format > value_format={"format": "protobuf", "schema": "order.proto", "message": "Order"}
n_threads num_threads workers n_jobs max_workers jobs parallel = threads
errors on_error ignore_errors on_bad_lines on_bad_records = on_corruption
strict verify_checksums check_crc crc = check_crcs
read_committed isolation = isolation_level
inplace = in_place
overwrite overwrite_existing force replace exist_ok if_exists = \
    output > another output: one that exists is never replaced
strict fail_fast raise_on_error = indexes_only > the result's ok, which is False after any damage
mode append incremental = resume
overwrite_existing exist_ok force = overwrite
partition_cols partitioning partition_keys = partition_by
brokers n_brokers replicas port listener listeners advertised_listeners node_id n_nodes = nodes
retention topic_ids topic_id = settings
settings_file = metadata
include_stray = include_unknown
missing = strict
interval interval_bytes index_interval every_bytes = index_interval_bytes
interval index_interval index_interval_bytes = interval_bytes
kafka_version version = release
dtype dtypes types = > decode= for values in tables, or kafkalog.read_numpy(path).key.to_numpy("S16")
include_internal internal_topics = internal
"""
)
"""Keyword arguments, ``=`` and the one that is meant, if a function has it.

After ``>`` is a text: for functions with the option before it, or for all that have none of the others.
"""

_LOG_ENDS: Final = {
    "start": "first_offset first_offsets beginning_offset beginning_offsets low_watermark earliest",
    "end": "last_offset last_offsets end_offsets high_watermark latest next_offset",
}
"""The words for attributes that are the offsets of a log's ends."""

_ATTRIBUTES: Final = (
    "\n".join(f"{end} {end}_offset {words} = log_{end}_offset" for end, words in _LOG_ENDS.items())
    + "".join(f"\n{end}_offset log_{end}_offset {words} = {end}" for end, words in _LOG_ENDS.items())
    + """
metadata file_metadata = kafkalog.ls(path) for sizes and numbers of records, or kafkalog.metadata(path) for the topics \
    of KRaft
watermarks get_watermark_offsets query_watermark_offsets earliest latest = log_start_offset and log_end_offset
end_offsets beginning_offsets earliest latest watermarks get_watermark_offsets = kafkalog.ls(path)
filter where query loc iloc = kafkalog.scan(path, filters="key == abc"), or where=function
select project with_columns drop rename = kafkalog.scan(path, columns=["offset", "key"])
read read_at read_offset fetch_offset seek_to = scan(start_offset=42, limit=1) and its to_table() or to_numpy(), or \
    kafkalog.cat(path, start_offset=42)
collect lazy compute fetch load execute run read = to_table(), to_pandas(), to_polars() or to_numpy()
check_crcs crc_ok check_crc verify_crcs verify_checksums valid_crcs = verify()
check_crcs crc_ok check_crc verify_crcs verify_checksums valid_crcs = crc (stored), and kafkalog.codec.check_crcs(data)
batch_headers batch_table header_table = batches
murmur2 partition_for_key partition_for_keys partitions hash_keys = factorize(), or kafkalog.codec.partitions(keys, 12)
gaps offset_gaps missing_offsets = verify(), or kafkalog.read_numpy(path).offset, and np.diff of it
limit take first nrows sample = head(10), or kafkalog.scan(path, limit=10)
head limit take first nrows sample = to_table > to_table()[:10]
fetchall rows iter_rows iterrows itertuples records messages to_pylist to_dicts to_list tolist = \
    to_table().to_pylist(), or kafkalog.cat(path) for records as objects
batches = to_batches > kafkalog.batches(path) for those of the log, or to_batches() for tables
batches = kafkalog.batches(path)
to_numpy_batches numpy_batches iter_to_numpy = iter_numpy()
iter_batches record_batches chunks fetch_record_batch to_arrow_reader reader = to_batches(), or to_reader()
df pandas toPandas to_df to_dataframe dataframe = to_pandas()
pl polars = to_polars()
arrow to_arrow read_table table fetch_arrow_table arrow_table = to_table()
pl polars to_polars df pandas to_pandas to_df arrow table = to_arrow()
numpy values to_array = to_numpy()
size = count_rows > size_in_bytes, in bytes, or count_rows() for records
size = size_in_bytes, in bytes
count size shape num_rows n_rows nrows height length n_records num_records count_records total = count_rows()
dtypes schema fields columns collect_schema column_names names = to_table().schema, or kafkalog.scan(path).schema
name = topic_partition, or path
topic get_topic = set_apart > log_dir["orders"] for a topic, log_dir["orders", 0] for a partition
last newest = tail(1)
timestamps = head > kafkalog.read_table(path, columns=["timestamp"])["timestamp"]
record get at = kafkalog.lookup(path, offset=42), or kafkalog.cat(path, start_offset=42)
read_all = to_table(), to_pandas() or to_polars()
to_duckdb duckdb = kafkalog.sql("select * from records", path), or duckdb.sql("select * from scan")
describe summary = kafkalog.ls(path), or kafkalog.report(path)
sink_csv to_json write_json to_feather write write_table write_dataset write_delta = \
    kafkalog.export(path, "out.parquet")
group_by groupby agg aggregate join sort sort_by order_by sort_values unique distinct pivot value_counts \
    union sum mean max min = kafkalog.sql("select * from records", path), or to_polars() or to_pandas() first
sql = kafkalog.sql("select * from records", path)
assign = kafkalog.open_log_dir(path)[topic, number], which reads without a group
commit committed committed_offsets = kafkalog.groups(path) for the offsets that groups have committed
position pos = log_start_offset, and log_end_offset
seek_to_end = tail(10)
seek_to_beginning = kafkalog.scan(path), which reads from the first record
partitions_for_topic partitions_for get_partitions = set_apart > log_dir[topic], whose items are its partitions
is_active active = is_last
first_offset start_offset start log_start_offset = next_offset > base_offset
last_offset end = next_offset, one past the last offset
fetchone fetchmany fetchval = fetchall > fetchall()[0]
fetchone fetchmany fetchval = to_table().to_pylist()
fetchdf fetch_df = df > df()
fetchnumpy fetch_numpy = to_table > to_table(), and its to_numpy() of each column
description = schema
to_json dumps = to_dict > to_dict(), and json.dumps of it
summary print_summary = to_pandas > print() of it
n_damage n_findings n_errors n_faults n_problems error_count damage_count = findings > len(findings)
show display print = head(20), or kafkalog.cat(path)
show display print = to_pandas(), or print() of it
seek skip seek_to_offset = kafkalog.scan(path, start_offset=42), or since="2026-11-28T00:00Z" for a time
consume poll subscribe consumer = kafkalog.cat(path), or kafkalog.scan(path)
get_partition partition = kafkalog.open_log_dir(path)[topic, number], or kafkalog.scan(path, partitions=0)
topic = kafkalog.scan(path, topics="orders")
partitions topic_partitions keys items = set_apart > kafkalog.ls(path).to_pandas() for a table, list(log_dir), or \
    log_dir[topic, number]
partitions items rows entries elements values = noun > list(result), or result[topic, number]
hanging_transactions = kafkalog.transactions(path)
committed = kafkalog.groups(path)
offsets = head > kafkalog.read_table(path, columns=["offset"])["offset"]
as_dict to_json_dict json asdict dict model_dump = to_dict()
latest current newest last last_version = noun > result[-1] for the last one, which is the latest
errors problems issues warnings faults defects damage damaged corruption corruptions failures bad is_damaged = findings
errors problems issues warnings findings damage damaged failures missing = faults
is_valid is_ok valid success passed healthy is_healthy is_clean clean status verdict = ok
lost lost_records records_lost n_lost n_lost_records n_records_lost loss lost_offsets lost_ranges data_loss missing \
    missing_records missing_offsets holes gaps = losses
json_normalize json parse_json from_json explode struct unnest = kafkalog.scan(path, value_format="json")
to_records to_structured as_numpy to_numpy = to_table()
time times datetime timestamps to_datetime = datetimes()
num_rows n_rows nrows height shape size length count = n_records
unique value_counts group_by groupby nunique codes dictionary_encode drop_duplicates = factorize()
sort order_by sort_by sort_values sort_indices = argsort()
by_name get_all = with_header > to_pylist(), or get(name)
columns names fields dtypes = keys()
is_na null_mask nulls mask tombstones = is_null()
is_not_null valid_mask = is_valid()
sizes itemsize length lens str_len value_lengths = lengths
concat append extend vstack hstack = concatenate([a, b])
astype to_int frombuffer as_array decode str = as_dtype(">i8") for values of one size, or to_numpy("U") for text
search find bisect searchsorted get_position = tofile > lookup([0, 42])
search find bisect = kafkalog.lookup(path, offset=42), or kafkalog.scan(path, filters="key == abc")
save savez to_npz write to_file dump = to_arrays > np.savez(file, **records.to_arrays())
save write to_file dump = tofile(path)
write write_table write_batch write_batches write_records add put send produce insert extend = append(table)
to_html save_html render save show open = write("report.html")
head first = slice(0, 10), or records[:10]
tail last = take(range(-10, 0)), or records[-10:]
filter where query loc iloc = take(rows), or an index: records[mask]
sort sort_by order_by sort_values argsort = take(np.argsort(records.key)), or an index: records[np.argsort(records.key)]
groupby group_by agg aggregate join merge pivot describe = to_arrays > to_pandas(), or np.bincount of \
    key.factorize()
groupby group_by agg aggregate join merge pivot describe = to_pandas()
head tail sort_values query = to_pandas(), or print() of it
copy deepcopy = take(slice(None)), which copies
assign update with_columns with_column drop rename select insert = items(), and RecordColumns(len(records), {...})
isin = to_numpy(), as in np.isin(column, [b"a"])
startswith starts_with endswith ends_with contains match upper lower strip split json to_string \
    = data and offsets, or pyarrow.compute: pc.starts_with(column.to_arrow(), "a")
iterrows itertuples iter_rows rows records to_dicts to_pylist tolist = to_arrow(), whose to_pylist() has a dict per row
max min = argsort(), whose last row is the largest of those that are not null
n_records num_records count = records_count
to_dict as_dict asdict dict to_json json items = headers > _asdict()
topic_partition tp = headers > topic and partition
timestamp_ms time datetime date = headers > timestamp, in milliseconds
get_offset get_key get_value = headers > offset, key and value, which are attributes
message msg text description error what = detail
code kind type error_code errno status = reason
filename file file_name segment topic partition topic_partition = reason > path, of the file
offset offsets first_offset = last_offset > base_offset and last_offset
offset offsets first_offset start_offset = reason > base_offset, of the batch, and position, of its first byte
pos byte_offset byte_position offset_in_file address = position
severity level is_damage = damage
topics topic partitions topic_partitions = pending > [one.topic for one in group.offsets]
timestamp timestamps time times datetimes = max_timestamp and base_timestamp, in milliseconds
compression compression_type = codec
datetimes = timestamp.astype("datetime64[ms]")
size shape ndim num_rows n_rows n_entries n_batches = nbytes for bytes, and len(...) for rows
"""
)
"""Attributes of our objects, ``=`` and what to call instead; if an object has no such attribute."""

_CLASS_ATTRIBUTES: Final = """
load read parse from_file from_path from_bytes from_buffer frombuffer fromfile = open> CLASS.open(path)
open load read from_path from_dir from_directory = scan> open(path)
from_dict from_pydict from_pandas from_arrow from_records from_numpy from_table = \
    from_arrays> CLASS(2, {"offset": np.arange(2)}), or CLASS.from_arrays(records.to_arrays())
from_list from_pylist from_array from_numpy from_values from_arrow from_iterable array = of> CLASS.of([b"a", None])
"""
"""Attributes of classes, ``=``, a name that the class has, ``>`` and what to call instead; CLASS is its name."""

_SAME_ATTRIBUTES: Final = """
isnull isna = is_null
notnull notna = is_valid
to_structured to_records = to_numpy
tolist to_list = to_pylist
view = as_dtype
num_rows height = n_records
df toPandas to_df read_pandas = to_pandas
pl read_polars = to_polars
read_table = to_table
read_numpy = to_numpy
"""
"""Attributes of NumPy, pandas, Polars, pyarrow, DuckDB and Spark that mean the same here, ``=`` and our own name."""


class Lead(NamedTuple):
    """What a word of another tool stands for."""

    line: str
    """The command line, or a text that names it."""
    python: str
    is_same: bool
    """Whether the word means the same as the command line."""


@cache
def rows(table: str) -> Sequence[str]:
    """The rows of a table; indented lines continue a row."""
    return re.sub(r" *\n +", " ", table.strip().replace("\\\n", "\n")).split("\n")


@cache
def commands() -> Mapping[str, Lead]:
    """The words for commands and functions."""
    found: dict[str, Lead] = {}
    for row in rows(_COMMANDS):
        words, sign, rest = re.split(r" ([=>]) ", re.sub(r"  +", " ", row), maxsplit=1)
        line, _, python = rest.partition(" | ")
        for word in words.split():
            found.setdefault(word, Lead(line.strip(), python.strip(), sign == "="))
    return found


@cache
def _pairs(table: str) -> Mapping[str, Sequence[str]]:
    """The words before ``=``, with all that are meant, in the order of the table."""
    found: dict[str, list[str]] = {}
    for row in rows(table):
        words, _, meant = row.partition(" = ")
        for word in words.split():
            found.setdefault(word, []).append(" ".join(meant.split()))
    return found


def plain(word: str) -> str:
    """A word for a command without what scripts and functions add to it.

    >>> plain("kafka-dump-log.sh"), plain("index_stats")
    ('dump-log', 'index-stats')
    """
    name = word.lower().replace("_", "-").removesuffix(".sh").removesuffix(".bat").rpartition(".")[2]
    return name.removeprefix("kafka-") or name


_BRITISH: Final = ((r"yse(?=\b|-)", "yze"), (r"is(e|ed|ing|ation)(?=\b|-)", r"iz\1"), (r"our(?=\b|-|ed)", "or"))


def american(word: str) -> str:
    """A word in the spelling of the tables.

    >>> american("summarise"), american("--no-colour"), american("analyse")
    ('summarize', '--no-color', 'analyze')
    """
    for british, spelt in _BRITISH:
        word = re.sub(british, spelt, word)
    return word


def command_lead(name: str) -> Lead | None:
    spellings = (name, american(name), f"{name}s", name.removesuffix("s"))
    return next((commands()[word] for word in spellings if word in commands()), None)


def unknown_keyword(name: str, known: Collection[str], value: object = None) -> str:
    """The end of the message about an unknown keyword argument: the one that is meant, or all of them.

    A text with a place for a value gets the one that was given.
    """
    if text := _place(name, known, value) or _own_text(name, known, value):
        return text
    if meant := _meant_keywords(name, known):
        return f"use {re.sub(r'(?<==|:)( ?)VALUE', lambda found: found[1] + shown(value), ' or '.join(meant))}"
    if close := near_name(name, known) or _only_longer(name, known):
        return f"did you mean {close}=?"
    there = "there is" if len(known) == 1 else "there are"
    return f"{there} {likely(name, known)}" if known else "it has none"


def _place(name: str, known: Collection[str], value: object) -> str | None:
    """The call to type instead of an option about the place of files, for a function without it."""
    if name in ("filesystem", "fs") and not isinstance(value, (dict, str, type(None))):
        return "pass kafkalog.location(url, filesystem=filesystem) as the path"
    if name not in ("tiered", "tiered_keys", "storage_options", "filesystem") or name in known:
        return None
    option = "storage_options" if name == "filesystem" else name
    given = f"{option}={shown(value)}"
    return f"use {option}=" if option in known else f"pass kafkalog.open(path, {given}) as the path"


def _own_text(name: str, known: Collection[str], value: object) -> str | None:
    """What to type for an option whose value, or whose function, says what is meant."""
    if name.endswith("schema") and isinstance(value, dict) and "type" not in value and "decode" in known:
        fields = [f"value.{one}" for one in value]
        return f'use value_format="json", which takes types from the values, and columns={shown(fields)} for fields'
    if name in ("partition", "partition_id") and "partitioner" in known:
        return "partitions= is their number; a column partition has that of each record (0 by default)"
    if name in ("output", "html", "html_path") and name not in known and "config" in known:
        return "the result has write(path), to_html(), to_markdown() and to_dict()"
    return None


def _only_longer(name: str, known: Collection[str]) -> str | None:
    """The one name that begins with the words of another."""
    longer = [one for one in known if one.startswith(f"{name}_")]
    return longer[0] if len(longer) == 1 else None


def shown(value: object) -> str:
    """A value as it is typed, or ``...`` for a long one."""
    text = repr(value)
    return text if len(text) <= _MOST_CHARACTERS and "<" not in text else "..."


_MOST_CHARACTERS: Final = 60


def has_text(name: str, known: Collection[str]) -> bool:
    """Whether a text says what to call instead of an option, where some others are known."""
    return any(not one.endswith("=") for one in _meant_keywords(name, known))


def likely(word: str, names: Iterable[str], most: int = 0) -> str:
    """The names that a word is most likely to mean, first; the others in their order."""
    most = most or _SHOWN
    known = [*names]
    best = sorted((one for one in known if _likeness(word, one) > _ALIKE), key=lambda one: -_likeness(word, one))
    ranked = [*best, *(one for one in known if one not in best)]
    return ", ".join(ranked[:most]) + (", ..." if len(ranked) > most else "")


def _likeness(word: str, name: str) -> float:
    """How likely a name is meant by a word: by the parts that they share, or else by their letters."""
    import difflib

    shares = not set(word.split("_")).isdisjoint(name.split("_"))
    return shares + difflib.SequenceMatcher(None, word, name).ratio()


_ALIKE: Final = 0.6
_SHOWN: Final = 8
_SHOWN_ATTRIBUTES: Final = 24
"""The names that an error lists at most."""


def meant_keyword(name: str, known: Collection[str]) -> str | None:
    """The keyword argument, of those that are known, that has this name in other libraries."""
    return next((one for one in _pairs(_KEYWORDS).get(name, ()) if one in known), None)


def _meant_keywords(name: str, known: Collection[str]) -> list[str]:
    leads = _pairs(_KEYWORDS).get(name) or _pairs(_KEYWORDS).get(american(name), ())
    divided = [one.partition("> ") for one in leads]
    texts = [text for needs, _, text in divided if text and needs.strip() in known]
    named = [f"{one}=" for one in leads if one in known]
    return named or texts[:1] or [text for needs, _, text in divided if text and not needs]


def unknown_function(name: str, known: Iterable[str]) -> str | None:
    """The end of the message about an unknown name of the package; None if nothing is meant."""
    alike = _alike(name, known)
    if texts := _pairs(_FUNCTIONS).get(name.lower()):
        return f"use {texts[0]}"
    lead = command_lead(plain(re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name))) or command_lead(plain(name))
    if lead is not None and name.lower() not in map(str.lower, alike):
        return f"use {_called(lead.python)}"
    for module in ("codec", "functions"):
        if name in getattr(sys.modules["kafkalog"], module).__all__:
            return f"use kafkalog.{module}.{name}"
    verb, _, noun = name.partition("_")
    if verb in _READING and noun in _READERS:
        return _READERS[noun]
    if close := _near_name(name, alike):
        return f"did you mean kafkalog.{close}?"
    if re.search(r"(?:Error|[Ee]xceptions?)$", name):
        return "the errors are in kafkalog.errors; KafkalogError is the base of all"
    if noun and verb in _READING and (function := _function_of(noun)):
        return function
    return _OF_VERBS.get(verb) if noun else None


def names_like(name: str, known: Iterable[str]) -> str:
    """The public names that have a word of an unknown one, or else the functions, as text."""
    words = {one.lower() for one in re.findall(r"[A-Z]?[a-z0-9]+", name) if len(one) > 2}
    alike = [one for one in known if words & {part.lower() for part in re.findall(r"[A-Z]?[a-z0-9]+", one)}]
    names = alike or [one for one in known if one.islower()]
    return f"there {'are' if names[1:] else 'is'} {', '.join(names)}"


def _function_of(noun: str) -> str | None:
    """The function about something, as groups(path) for group_offsets."""
    for one in (noun, *noun.split("_")):
        for spelt in (one, f"{one}s", one.removesuffix("s")):
            if spelt in _log_functions():
                return f"use kafkalog.{spelt}({', '.join(_needed_by(spelt)) or 'path'})"
    lead = command_lead(plain(noun))
    return None if lead is None or lead.python.startswith(("open(", "cat(")) else f"use {_called(lead.python)}"


def _needed_by(function: str) -> list[str]:
    """The arguments that a public function needs by position."""
    called = getattr(sys.modules["kafkalog"], function)
    code, defaults = called.__wrapped__.__code__, called.__wrapped__.__defaults__ or ()
    return list(code.co_varnames[: code.co_argcount - len(defaults)])


def _called(python: str) -> str:
    """The text of a lead with the name of the package before each function."""
    return f"kafkalog.{python.replace(', or ', ', or kafkalog.').replace('; ', '; kafkalog.')}"


def _near_name(name: str, known: Iterable[str]) -> str | None:
    """The most similar name, if it does the same: what writes is never suggested for what reads, nor the reverse."""
    verb = name.partition("_")[0]
    names = [one for one in known if _OF_VERBS.keys().isdisjoint((verb, one.partition("_")[0])) or _same(name, one)]
    return near_name(name, names)


def _same(name: str, other: str) -> bool:
    """Whether two names with verbs are similar in the verb and in the noun."""
    pairs = zip(name.partition("_")[::2], other.partition("_")[::2], strict=True)
    return all(one == two or near(one, [two]) for one, two in pairs)


def _alike(name: str, known: Iterable[str]) -> list[str]:
    """The names that differ in case only, or else those of classes for a class, and of functions for a function."""
    names = [*known]
    same = [one for one in names if one.lower() == name.lower()]
    return same or [one for one in names if one[0].isupper() == name[0].isupper()]


_READ: Final = "use kafkalog.read_table(path)"
_EXPORT: Final = 'use kafkalog.export(path, "out.parquet"), or kafkalog.read_table(path) for a table'
_WRITE: Final = "use kafkalog.write_table(table, path, topic=name)"
_READING: Final = ("read", "scan", "from", "open", "load", "iter", "get", "list", "show", "describe", "fetch", "print")
_OF_VERBS: Final = {
    **dict.fromkeys(("read", "scan", "open", "load", "iter"), _READ),
    **dict.fromkeys(("to", "save", "sink", "export", "dump"), _EXPORT),
    **dict.fromkeys(("write", "insert", "append", "produce"), _WRITE),
}
"""By the verb of a name that means nothing here: what reads, writes files, or writes a log."""

_FUNCTIONS: Final = """
register attach register_duckdb to_duckdb from_duckdb connect_duckdb duckdb_connection create_view = \
    kafkalog.sql("select * from orders", path), or con.register("orders", kafkalog.scan(path, topics="orders")) for a \
    connection of DuckDB; kafkalog.spark.register(spark) for Spark
spark to_spark read_spark from_spark register_spark spark_session sparksession tospark = \
    kafkalog.spark.register(spark), and spark.read.format("kafkalog").load(path)
offsets_for_times offset_for_timestamp offset_for_time offsets_for_timestamps offset_at time_to_offset seek_time = \
    kafkalog.lookup(path, timestamp="2026-11-28T00:00Z"), or \
    kafkalog.open_log_dir(path)[topic, 0].offset_for_timestamp("2026-11-28T00:00Z")
write_polars write_df write_dataframe write_batches write_frame to_topic = \
    kafkalog.write_table(table, path, topic=name)
to_dask read_dask from_dask dask to_ddf = \
    kafkalog.export(path, "out.parquet"), and dask.dataframe.read_parquet("out.parquet")
to_ibis ibis read_ibis = kafkalog.export(path, "out.parquet"), and ibis.read_parquet("out.parquet")
plot graph chart hist = kafkalog.report(path).write("report.html"), or kafkalog.read_pandas(path) and its plot()
repair fix heal = kafkalog.salvage(path, output) for the intact batches, kafkalog.boot(path, output) for a cluster \
    that starts, or kafkalog.recover(path, in_place=True, backup=backup) for what a broker does at its start
compress = kafkalog.codec.encode(records, compression="zstd") for records, pyarrow.compress for other bytes, or \
    kafkalog.convert(path, output, compression="zstd") for a log
decompress = kafkalog.codec.decode(data) for records, pyarrow.decompress for other bytes, or \
    kafkalog.convert(path, output, compression="none") for a log
json_normalize from_json parse_json = kafkalog.read_table(path, value_format="json")
compare compare_content content_diff = kafkalog.diff("A/orders-0", "B/orders-0") for replicas of a partition, or \
    kafkalog.comparing.content.compare(a, b) for the records of log dirs
read_schema = kafkalog.scan(path).schema for the columns, or kafkalog.schemas(path) for those of a registry
read_metadata = kafkalog.ls(path) for sizes and numbers of records, or kafkalog.metadata(path) for the topics of KRaft
scan_polars lazyframe scan_lazy read_lazy = polars.scan_pyarrow_dataset(kafkalog.dataset(path)), which is lazy, or \
    kafkalog.read_polars(path)
avrodeserializer jsondeserializer protobufdeserializer deserializingconsumer avroconsumer valuedeserializer = \
    kafkalog.read_table(path, value_format="json"), or another format, with schemas= or a schema
schemaregistryclient schemaregistry = kafkalog.schemas(path), or schemas="http://localhost:8081" of a scan
newtopic createtopic topicmetadata = kafkalog.write_table(table, path, topic=name)
parquetfile parquetdataset ipcfile = kafkalog.scan(path), and its schema and to_batches()
file h5file hdffile = kafkalog.open_log_dir(path)["orders", 0] for a partition, or kafkalog.ls(path) for a list
writer logwriter topicwriter segmentwriter = kafkalog.PartitionWriter("DIR/orders-0") for a partition, whose \
    append(table) writes, or kafkalog.write_table(table, path, topic=name) for one table
"""
"""Names that are tried in Python alone, ``=`` and what to call."""


_READERS: Final = {
    "polars": "use kafkalog.read_polars(path)",
    "topic": "use kafkalog.open_log_dir(path)[topic]",
    "dataframe": "use kafkalog.read_pandas(path)",
    "arrow": _READ,
    "json": "kafkalog.read_table(path, value_format='json') decodes values; kafkalog.load(file, output, topic=name)"
    " writes a file of JSON lines as a log",
    "parquet": "kafkalog.load(file, output, topic=name) writes a Parquet file as a log",
    "csv": 'kafkalog.load("in.csv", output, topic=name, value_format="json") writes a CSV file as a log',
    "batches": "use kafkalog.batches(path) for those of the log, or kafkalog.scan(path).to_batches() for tables",
    "numpy": "use kafkalog.scan(path).iter_numpy()",
}


def same_attribute(value: object, name: str) -> str | None:
    """The attribute of one of our objects that has another name in other libraries; None for any other name."""
    others = _pairs(_SAME_ATTRIBUTES).get(name)
    known = object.__dir__(value) if others else ()
    return next((meant for meant in others or () if meant in known), None)


def unknown_attribute(value: object, name: str) -> str:
    """The end of the message about an unknown attribute of one of our objects: what is meant, or all that there is."""
    inherited = next((dir(base) for base in (list, tuple, OSError, BaseException) if isinstance(value, base)), ())
    known = [one for one in object.__dir__(value) if not one.startswith("_") and one not in inherited]
    is_log = not {"scan", "target"}.isdisjoint(known)
    if meant := _meant_attribute(name, known, is_log=is_log):
        return f"use {meant}"
    of_parts = () if is_log else _names_of_parts(value, known)
    if part := _named_part(value, name, known, of_parts):
        return f"use {part}"
    if close := _near_name(name, known):
        return f"did you mean {close}?"
    if is_log and (function := unknown_function(name, ())):
        return function
    return _there(value, name, known) + (f"; each part has {likely(name, of_parts)}" if of_parts else "")


def _named_part(value: Any, name: str, known: Collection[str], of_parts: Collection[str]) -> str | None:
    """The call to type where the name of a table, a topic or an attribute of each part was used as an attribute."""
    if "tables" in known and name in value.tables:
        return f"tables[{name!r}], or to_pandas({name!r})"
    if "set_apart" in known:
        return next((f"log_dir[{one!r}]" for one in value.topics if re.sub(r"\W", "_", one) == name), None)
    part = _part(name, of_parts)
    each = f"[part.{part} for part in result]"
    return part and f"{f'sum({each})' if name.startswith('total_') else each}: each part has it"


def _there(value: object, name: str, known: Collection[str]) -> str:
    """The attributes of an object that people use, as text: what it has, and then what it does."""
    shown, kind = {*dir(value)}, type(value)
    listed = sorted((one for one in known if one in shown), key=lambda one: (callable(getattr(kind, one, None)), one))
    return f"there are {likely(name, listed, _SHOWN_ATTRIBUTES)}"


def unknown_of_class(kind: type, name: str) -> str:
    """The end of the message about an unknown attribute of one of our classes."""
    known = [one for one in dir(kind) if not one.startswith("_")]
    for lead in _pairs(_CLASS_ATTRIBUTES).get(name, ()):
        needs, _, text = lead.partition("> ")
        if needs in known:
            return f"use kafkalog.{text.replace('CLASS', kind.__name__)}"
    close = _near_name(name, known)
    return f"did you mean {close}?" if close else f"there are {likely(name, known, _SHOWN_ATTRIBUTES)}"


def _part(name: str, names: Collection[str]) -> str | None:
    """The known name that a name stands for: itself, its singular, or the name without ``total_``."""
    spellings = (name, re.sub(r"ies$", "y", name), name.removesuffix("s"), name.removeprefix("total_"))
    return next((one for one in spellings if one in names), None)


def _names_of_parts(value: Any, known: Collection[str]) -> Collection[str]:
    """The public names of what a result is a container of; of an empty one, as far as its class has the type."""
    if not {"topics", "to_pandas"} <= {*known}:
        return ()
    first = next(iter(value._parts()), None)
    kinds = [kind for base in getattr(type(value), "__orig_bases__", ()) for kind in get_args(base)]
    kind = kinds[0] if first is None and kinds else type(first)
    names = [*dir(kind), *getattr(kind, "__dataclass_fields__", ())]
    return [one for one in dict.fromkeys(names) if not one.startswith("_")]


def _meant_attribute(name: str, known: Collection[str], *, is_log: bool) -> str | None:
    for lead in _pairs(_ATTRIBUTES).get(name, ()):
        needs, _, text = lead.rpartition("> ")
        # what reads records can be asked for other records; a report cannot
        of_log = is_log and text.startswith("kafkalog.") and not needs
        if of_log or (needs.strip() or re.split(r"\W", text)[0]) in known:
            return text
    return f"kafkalog.{name}(path)" if is_log and name in _log_functions() else None


@cache
def _log_functions() -> Collection[str]:
    """The public functions, most of which take the path of a log."""
    names = sys.modules["kafkalog"].__all__
    return {name for name in names if name.islower() and not name.startswith(("open", "write", "load"))}
