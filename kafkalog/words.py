"""Words of other tools, and what to type here: for commands and options of the shell, and for names in Python.

A word is here if somebody who knows kcat, Kafka's scripts, etcdctl, sst_dump, pandas, polars, pyarrow, DuckDB or the
shell tries it. The nearest of the valid words is suggested only if nothing is here, and only if it is very similar.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from types import FunctionType
from typing import Final, NamedTuple

from kafkalog.text import DURATION, near

_COMMANDS: Final = """
head            = cat -n 10                                         | read_table(path, limit=10)
tail            = cat --tail 10                                     | scan(path).tail(10)
ll list dir liste auflisten = ls                                    | ls(path)
du disk-usage   = space                                             | space(path)
fsck check validate sanity-check verify-index verify-indexes check-index check-indexes prüfen pruefen überprüfen \
    = verify | verify(path)
query abfrage   = sql                                               | sql(query, path)
lag consumer-lag consumer-groups gruppen = groups                                | groups(path)
dump-log dumplogsegments dumplog dump-log-segments = dump                             | dump(path)
version         = --version                                         | __version__
help man manual hilfe = --help                                            | __doc__
topics list-topics topic-list tree > kafkalog ls PATH, or kafkalog metadata PATH --show topics for their settings \
    | ls(path), or open_log_dir(path).topics
info describe summary summarize status stats stat show-topics inspect file meta footer overview bericht zeigen \
    > kafkalog ls PATH, or kafkalog report PATH \
    | ls(path), or report(path)
partitions list-partitions segments log-dirs files > kafkalog ls PATH, with -s for segments | ls(path)
offsets get-offsets offset-shell getoffsetshell endoffsets > kafkalog groups PATH for committed offsets, kafkalog ls \
    PATH for the ends of logs | groups(path) for committed offsets, ls(path) for the ends of logs
grep get search where filter rg egrep fgrep zgrep ag ack match suchen finden \
    > kafkalog cat PATH --filter 'key == WORD' (or \
    'value contains WORD') | read_table(path, filters="key == abc")
find seek locate > kafkalog lookup PATH --offset N, or kafkalog cat PATH --filter 'key == WORD' \
    | lookup(path, offset=42), or read_table(path, filters="key == abc")
read consume consumer console-consumer show print view less more messages records fetch poll scan lesen anzeigen \
    > kafkalog cat PATH | cat(path), or read_table(path)
rewind skip seek-to-beginning > kafkalog cat PATH --start-offset N | scan(path, start_offset=42)
watch follow subscribe > kafkalog cat PATH --follow --tail 0 | scan(path)
select            > kafkalog sql 'select ...' PATH | sql(query, path)
duckdb connect execute exec > kafkalog sql 'select ...' PATH | sql(query, path)
count wc count-rows num-rows num-records n-records n-rows rowcount row-count zählen \
    > kafkalog ls PATH (RECORDS), or kafkalog sql 'select count(*) from TOPIC' PATH \
    | scan(path).count_rows()
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
to-json json jsonl to-jsonl ndjson > kafkalog cat PATH --json, or kafkalog export PATH -o out.jsonl \
    | export(path, "out.jsonl")
to-arrow arrow feather to-feather ipc > kafkalog export PATH -o out.arrow | read_table(path)
to-delta delta iceberg to-iceberg > kafkalog export PATH -o TABLE --format delta --resume \
    | export(path, table, format="delta", resume=True)
extract copy-out > kafkalog export PATH -o DIR | export(path, output)
produce producer-perf-test console-producer append write import ingest insert put from-parquet from-csv \
    > kafkalog load FILE -o DIR --topic TOPIC | load(file, output, topic=name), or write_table(table, path, topic=name)
anonymize anonymise pseudonymize redact mask > kafkalog convert PATH -o DIR --redact value=null --redact-where \
    'key == WORD' | convert(path, output, redact={"value": "null"})
erase delete del rm forget remove gdpr drop purge löschen \
    > kafkalog convert PATH -o DIR --drop 'key == WORD' (trim and truncate remove the ends of a log) \
    | convert(path, output, drop="key == abc")
upgrade migrate > kafkalog convert PATH -o DIR, to format v2 | convert(path, output)
decompress uncompress gunzip unzip zcat > kafkalog convert PATH -o DIR --compression none \
    | convert(path, output, compression="none")
recompress rewrite transform compress > kafkalog convert PATH -o DIR --compression zstd \
    | convert(path, output, compression="zstd")
cp copy clone backup snapshot save-snapshot dd sync rsync scp kopieren sichern \
    > kafkalog salvage PATH -o DIR (verified), or cp -a \
    | salvage(path, output)
repair fix heal fsck-repair reparieren \
    > kafkalog preflight PATH, then kafkalog recover PATH --in-place --backup DIR, or kafkalog \
    salvage PATH -o DIR | preflight(path), then recover(path, ...) or salvage(path, output)
rescue > kafkalog salvage PATH -o DIR | salvage(path, output)
carve photorec testdisk extundelete unrm recover-deleted > kafkalog undelete IMAGE -o DIR | undelete(image, output)
restore restore-tiered wiederherstellen > kafkalog tiered restore URL -o DIR, or kafkalog boot PATH -o DIR \
    | restore_tiered(remote, output), or boot(path, output)
start serve server-start up bootstrap format storage run launch > kafkalog preflight PATH (what a start does), or \
    kafkalog boot PATH -o DIR (a log dir for a new cluster) | preflight(path), or boot(path, output)
index indexes read-index open-index load-index show-index offset-index time-index > kafkalog dump FILE.index to \
    print one, kafkalog index-stats PATH to measure them, or kafkalog reindex PATH --in-place to rebuild them \
    | OffsetIndex.open(path), or TimeIndex.open(path)
rebuild rebuild-index rebuild-indexes reindex-all regenerate > kafkalog reindex PATH --in-place \
    | reindex(path, ...); index_stats(path) measures
build-index build-indexes make-index create-index new-index > kafkalog reindex PATH --in-place \
    | OffsetIndex.build(segment.batches, segment.base_offset, index_interval_bytes=4096)
index-sanity-check > kafkalog verify PATH | verify(path)
log-cleaner cleaner clean vacuum compaction defrag gc optimize > kafkalog compact PATH -o DIR | compact(path, ...)
delete-records > kafkalog trim PATH --before-offset N -o DIR | trim(path, output, before_offset=42)
retention expire prune > kafkalog trim PATH --retention-ms MS -o DIR | trim(path, ...)
chop rollback > kafkalog truncate PATH --to-offset N -o DIR | truncate(path, ...)
compare cmp comm replica-verification vergleichen \
    > kafkalog diff REPLICA REPLICA, or kafkalog diff --content A B | diff(a, b)
translate translate-offsets offset-translation remote-cluster-utils > kafkalog groups A --translate-to B | groups(path)
join combine > kafkalog merge REPLICA REPLICA -o DIR | merge(replicas, output)
concat concatenate > kafkalog merge REPLICA REPLICA -o DIR \
    | RecordColumns.concatenate([...]) for records, or merge(replicas, output) for replicas of a log
groups-list group members member list-groups consumers describe-groups share-groups streams-groups \
    > kafkalog groups PATH --members | groups(path)
txn txns transaction hanging find-hanging > kafkalog transactions PATH | transactions(path)
config configs settings acls users quotas brokers cluster metadata-shell metadata-quorum features get-cluster-id \
    topic-configs > kafkalog metadata PATH | metadata(path)
under-replicated under-replicated-partitions unavailable offline isr replicas leaders assignment assignments \
    > kafkalog metadata PATH --show partitions | metadata(path)
producer-ids producer > kafkalog producers PATH | producers(path)
leader-epoch leader-epochs leader-election > kafkalog epochs PATH | epochs(path)
remote s3 tier tiered-storage > kafkalog tiered verify URL --log-dir PATH | verify_tiered(remote)
size sizes df storage-usage usage > kafkalog space PATH | space(path)
html dashboard health doctor diagnose ui serve-report > kafkalog report PATH -o report.html \
    | report(path).write("report.html")
batch batch-info dump-batches compression codecs properties > kafkalog batches PATH --summary | batches(path)
hexdump xxd od raw strings > kafkalog dump FILE.log --print-data-log, or kafkalog batches PATH | dump(path)
crc32c crc32 > kafkalog verify PATH | codec.crc32c(data)
varint varints > kafkalog dump FILE | codec.decode_varints(data), or codec.encode_varints(values)
writer log-writer segment-writer > kafkalog load FILE -o DIR --topic TOPIC | PartitionWriter(path), or \
    write_table(table, path, topic=name)
encode > kafkalog load FILE -o DIR --topic TOPIC | codec.encode(columns)
damage corruption crc checksum md5sum sha256sum sha1sum scrub verify-checksum integrity test lint sanity is-ok \
    > kafkalog verify PATH \
    | verify(path)
demo example test-data generate fixture quickstart > kafkalog sample DIR | sample(output)
sort uniq jq awk sed group-by top > kafkalog sql 'select ...' PATH, or kafkalog cat PATH --json and a pipe \
    | sql(query, path)
cut keys values timestamps headers columns > kafkalog cat PATH --columns offset,timestamp,key,value,headers \
    | read_table(path, columns=["offset", "key"])
tac reverse newest latest > kafkalog cat PATH --tail 10 | scan(path).tail(10)
tombstones nulls > kafkalog cat PATH --filter 'value is null' | read_table(path, filters="value is null")
dedupe dedup distinct compacted materialize ktable > kafkalog cat PATH --latest key | read_table(path, latest="key")
stream tailf > kafkalog cat PATH --follow --tail 0 | scan(path)
history changelog audit > kafkalog groups PATH --history | history(path)
explain plan > kafkalog cat PATH --explain | scan(path).explain()
analyze profile histogram distribution analysieren > kafkalog batches PATH --summary, or kafkalog space PATH --records \
    | batches(path), or space(path, records=True)
plot graph chart > kafkalog index-stats PATH --plot FILE, or kafkalog report PATH -o report.html \
    | index_stats(path), or report(path)
shell repl cli console prompt interactive > kafkalog sql 'select ...' PATH, or kafkalog ls PATH \
    | sql(query, path), or open(path)
web open endpoint endpoint-health alarm monitor > kafkalog report PATH -o report.html, or kafkalog ls PATH \
    | report(path), or open_log_dir(path)
avro protobuf decode deserialize decode-values > kafkalog cat PATH --value-format avro (or protobuf, json) \
    | read_table(path, value_format="avro"), or codec.decode(data) for bytes
replay mirror replicate install deploy inject > kafkalog load FILE -o LOG_DIR --install, into a stopped broker \
    | load(file, output, install=True)
split rotate roll segment resize > kafkalog convert PATH -o DIR --segment-bytes 100M | convert(path, output, config=...)
tar zip archive > kafkalog export PATH -o DIR, or tar -c PATH: files are read as they are | export(path, output)
mv rename rename-topic > kafkalog cat PATH --json, and kafkalog load FILE -o DIR --topic NAME \
    | load(file, output, topic=name)
kafka client kafka-client admin-client admin > kafkalog ls PATH | open(path)
reassign-partitions reassign preferred-replica-election alter-partitions create alter > kafkalog metadata PATH; a \
    running cluster is changed by Kafka's own scripts | metadata(path)
log logdir logdirectory log-dir log-directory directory topic dataset reader log-reader file-reader log-file logfile \
    segment-file kafka-log-file > kafkalog ls PATH \
    | open(path)
iterate iter iter-records read-records iter-messages rows message record-batch consumer-record parse \
    > kafkalog cat PATH | cat(path)
from-pandas from-polars from-arrow from-records from-dict to-kafka to-log write-log \
    > kafkalog load FILE -o DIR --topic TOPIC | write_table(table, path, topic=name)
aws gsutil gcloud az minio > kafkalog ls s3://BUCKET/PATH | ls("s3://bucket/path")
kcat kafkacat > kafkalog cat PATH -t TOPIC | cat(path)
"""
"""Words, ``=`` and the command line that they stand for, or ``>`` and what to type, ``|`` and the same in Python.

PATH and WORD stand for what was typed.
"""

_OPTIONS: Final = r"""
-X-isolation | --isolation-level | --isolation-level read_committed
-X --consumer-property --consumer-config --command-property | | leave it out: settings of clients do not count here
-b --bootstrap-server --broker-list --brokers --zookeeper --host --endpoints -P --command-config
    | | kafkalog reads files, not brokers; name a log dir, such as /var/lib/kafka
--file --files | kafkalog | kafkalog dump VALUE, or kafkalog cat VALUE
--file --files --path --paths --input --log-dirs --dir --data-dir -i --db | | pass PATH without an option
-o-from-time | --start-timestamp | --start-timestamp VALUE
-o-to-time | --end-timestamp | --end-timestamp VALUE
-o-from-end | --tail | --tail VALUE
-o --offset | --start-offset | --start-offset N from an offset, --tail N for the last N records; all by default
--offset | --to-offset | --to-offset N
--before | --before-offset | --before-offset N, or --before-timestamp TIME
--before --until --to-time --end-time | --end-timestamp | --end-timestamp TIME
--from --begin --start | --start-offset | --start-offset N, or --start-timestamp TIME
--to --end --stop | --end-offset | --end-offset N, or --end-timestamp TIME
--from-beginning --beginning --earliest -e --exit | --start-offset | leave it out: all records are read, to the end
--to --at | --to-offset | --to-offset N, --to-epoch N or --to-timestamp TIME
-C --consume --from-beginning -u | --start-offset | leave it out
--to-table | convert | kafkalog export PATH -o FILE.VALUE
--to-table | --columns | kafkalog export PATH -o FILE.VALUE
--to-json | convert | kafkalog export PATH -o FILE.jsonl
--to-json | --json | --json
--from --from-format --input-format --source-format | convert
    | leave it out: PATH is a log dir; kafkalog load reads tables, and kafkalog export writes them
--to --format --target-version | convert | leave it out: v2 is written
--output --out --to --outfile | --explain | kafkalog export PATH -o VALUE, or --json > FILE
--offsets --range --between | --start-offset | --start-offset N --end-offset N
--csv --tsv --excel --xlsx | --columns | kafkalog export PATH -o FILE.csv, or --json
--tail-from --skip --skip-offsets --skip-records --offset-from | --start-offset | --start-offset N
--sort --sort-by --order-by | --columns | kafkalog sql 'select * from TOPIC order by COLUMN' PATH
--count | -n | kafkalog ls PATH, which counts records; -n N reads some
-A -B --context | --start-offset | --start-offset N --end-offset N
--json-value --json-values --parse-json --decode-json | --value-format | --value-format json
--uncommitted --read-uncommitted | --isolation-level | leave it out: records are read whether committed or not
--internal --include-internal --system --all-topics | ls | leave it out: all topics are listed
--width --max-width --wide --wrap --no-trunc --no-truncate --term-width | |
    --json for whole values, or COLUMNS=N kafkalog ... for a width
--tz --timezone --time-zone --local-time --local --utc | --json | leave it out: times are UTC; --json has milliseconds
--level | --compression-level | --compression-level VALUE
--rename --new-name --topic | convert | kafkalog cat PATH --json, and kafkalog load FILE -o DIR --topic NAME
--no-crc --skip-crcs --no-crcs --index-sanity-check --verify-index-only --indexes | verify | --indexes-only
--only-errors --errors-only --failures --quiet-ok --brief | verify | -q
--names-only --name-only --names | --json | --json, and a pipe into jq
--crc --crcs --check-crcs --check-crc | verify | leave it out: checksums are checked
--fail-fast --exit-first --stop-on-error -x | verify | leave it out: the exit code is 1 if there is damage
--progress --no-progress --bar --no-bar | -q | leave it out: it shows on a terminal; -q hides it
--timeout-ms --timeout --poll-timeout --session-timeout | | leave it out: files are read to their end
--query --command --execute -c -e | sql | the query comes first: kafkalog sql 'select ...' PATH
--sample --every | -n | -n VALUE, or kafkalog sql 'select ... using sample 10' PATH
--reverse --desc --tac --order | --tail | --tail N
--pretty --indent --jq | --json | --json, and a pipe into jq
--color --no-color --no-headers --no-header --tree --recursive --unit --units --by | | leave it out
--retention | boot | --set 'TOPIC:retention=as-was' for the old retention, --set TOPIC:retention.ms=MS for a time; \
    retention is off by default
--missing | boot | leave it out: missing partitions begin at their highest known offset; --strict refuses them
--copy --threads | boot | leave it out: blocks are shared where the file system can, and all processors are used
--topic-id | boot | --set TOPIC:topic.id=ID
--settings | boot | --metadata VALUE
--node-id | boot | --nodes VALUE@HOST:PORT
--print-records --print-data --print-values --deserialize --decode --show-records | dump | --print-data-log
--summary --brief --unified -u | diff | leave it out: the first difference is shown; --content counts what differs
--summary --stats | ls | leave it out: the last line has the sums
--all --everything | | leave it out: all is read unless -t or -p choose
--quick --fast --headers-only | verify | --indexes-only
--topic --topics | groups | leave it out: each group has a line per partition; -g chooses groups
--reset-offsets --to-earliest --execute --delete-offsets --shift-by | groups
    | kafkalog reads groups, and kafka-consumer-groups.sh resets their offsets
--lag --offsets | groups | leave it out: each line has the committed offset and the lag
--abort --commit | transactions | leave it out: each hanging transaction is listed with the command that ends it
--days --hours --older-than --keep-days --max-age | --retention-ms | --retention-ms MS, or --before-timestamp -7d
--ts --time --when --date --at | --timestamp | --timestamp TIME
--key --grep --value | lookup | kafkalog cat PATH --filter 'key == VALUE'
--csv --parquet --arrow --jsonl --ndjson | export | -o FILE.csv (or .parquet, .arrow, .jsonl): the name says the format
--header --headers --no-header --column --line --box --list --mode | sql
    | leave it out: the first line has the names; --csv, --json or -o FILE choose another form
--sql --query --where | export | kafkalog sql 'select ...' PATH -o FILE
--schema-file --avsc --proto --schema-path | --schema | --schema VALUE
--deserialize --deser --codec-value --decoder | --value-format | --value-format avro (or json, protobuf, utf8)
-r -R --recursive | verify | leave it out: all below a directory is read
-O --latest --newest | --tail | --tail N
--last-n | --tail | --tail VALUE
-c --count --max-messages --head --top --first --lines --max --take --read-num --max-records --num --rows --nrows --size
    | -n | -n VALUE
--limit -n --count --head | --limits | leave it out, or pipe it into head -n VALUE
-J --jsonl --output-json --ndjson -w --write-out --output-format | --json | --json
-f% --format --fmt --template --property --formatter --formatter-property --output-hex --hex -F | --columns
    | --columns offset,key,value, or --json
--keys-only --key-only --no-value --no-values --hide-value | --columns | --columns offset,key
--values-only --value-only --no-key --no-keys | --columns | --columns offset,value
--fields --select --usecols --cut --col | --columns | --columns key,value
-K -D -Z --delimiter --print-key --print-value --print-offset --print-timestamp --print-partition --print-headers --null
    | --columns | --columns offset,key,value, or --json
--key --grep --key-equals --where-key -k | --filter | --filter 'key == VALUE'
--delete --erase --remove --exclude-key | --drop | --drop 'key == VALUE'
--value --contains --match --pattern --search -g -E | --filter | --filter 'value contains VALUE'
--prefix --from-key --key-prefix | --filter | --filter "key starts_with VALUE"
--header --headers | --filter | --filter 'headers.NAME == VALUE'
--where --query --condition --predicate --expr | --filter | --filter 'COLUMN OP VALUE'
--where -e --drop-where --delete-where --exclude-condition | --drop | --drop 'COLUMN OP VALUE'
--since-time | --start-timestamp | --start-timestamp TIME, such as 2026-11-28, or -1d for a day before now
--since --last --ago --newer-than --within | --start-timestamp
    | --start-timestamp -VALUE before now, or end-VALUE before the end of the log
--until --older-than | --end-timestamp | --end-timestamp TIME
--time --timestamp --from-time --date --after --start-time | --start-timestamp | --start-timestamp TIME
--time --date | --timestamp | --timestamp TIME
-s --value-deserializer --deserializer --decode --serde --value-type --avro --protobuf | --value-format
    | --value-format avro (or json, protobuf, utf8)
--key-deserializer --key-type | --key-format | --key-format utf8 (or json, avro)
-r-raw --raw-output --raw-values --slurp | --columns | --columns value for values alone, or --json, and a pipe into jq
-r --registry --registry-url --schema-registry-url | --schema-registry | --schema-registry URL
-s -sh -hs -h -a -c -d --total --max-depth --summarize
    | space | leave it out: it has totals, and human sizes on a terminal
-l -lh -la -h -a -1 --long --all --human --human-readable -S -r -R | ls
    | leave it out: ls has sizes, times and all topics; -s lists segments
-h --human-readable | | leave it out
--sort --sort-by --order-by --order | --json | --json, and sort with jq -s 'sort_by(.size_in_bytes)'
--endpoint-url --endpoint --s3-endpoint --host-url | --storage-option | --storage-option endpoint=VALUE
--region --aws-region | --storage-option | --storage-option region=VALUE
--profile --aws-profile --credentials --access-key --secret-key --no-sign-request | --storage-option
    | credentials from the environment: AWS_PROFILE=VALUE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
--remote --remote-storage --tier --s3 --bucket | --tiered | --tiered VALUE
--html --open --format --pdf --md --markdown --page | report | -o report.html (or .md, .json)
--format --type --to-format --as | sql | --csv, --json, or -o FILE.parquet
--to --out --dest --destination --target --outfile --out-file --outdir --save --write --export --parquet | --output
    | -o VALUE
--port --ports --advertised-listeners --listener --bind --address | --listeners | --listeners 127.0.0.1:VALUE
--version --kafka-version --target-release --to-release | --release | --release VALUE
--replicas --brokers --replication-factor | --nodes | --nodes VALUE
-G --group-id --consumer-group | --groups | --groups VALUE
--all-groups --describe --list --state --verbose-groups | --members | leave it out: all groups are listed; add --members
--describe --list --all --show --all-topics --topics-with-overrides -L | | leave it out, or try kafkalog ls PATH
--regex --regexp --re | --columns | --filter "key matches 'VALUE'" (or value; -t takes globs of topics)
--regex --include --whitelist --topic-pattern --only | --topics | --topics VALUE (names or globs)
--exclude | --drop | --drop 'key == VALUE' for records, --exclude-topics VALUE for topics
--exclude --blacklist --not --ignore --skip-topics | --exclude-topics | --exclude-topics VALUE
--skip-errors --skip-message-on-error --ignore-errors --keep-going --skip-corrupt --on-error --lenient --errors --strict
    | --on-corruption | --on-corruption skip
--no-verify --no-checksum --skip-crc | --no-check-crcs | --no-check-crcs
--deep-iteration --deep --full --thorough --verify-checksum --checksum --all-checks | verify | --deep
--deep-iteration | | leave it out
--strict | verify | leave it out: any damage makes the exit code 1
--fix --repair --auto -y -f -p --yes
    | verify | kafkalog preflight PATH, then kafkalog recover PATH --in-place --backup DIR
--dry --simulate --plan --preview --check --noop --what-if -N --dryrun --trockenlauf | --dry-run | --dry-run
--force --replace -y --yes --clobber | --overwrite | --overwrite
--force --inplace -y --yes --overwrite --execute | --in-place | --in-place
--mode --append --incremental --continue | --resume | --resume
--jobs -j --workers --parallel --parallelism --cores --concurrency --num-threads | --threads | --threads VALUE
-j | --json | --json
--silent -s | | -q
--debug --trace --log-level | | -v
--committed --read-committed | --isolation-level | --isolation-level read_committed
--tombstones --compacted --dedup --unique | --latest | --latest key
--segment --segments -s | --segments | --segments
--partition-cols --hive --partition | --partition-by | --partition-by topic,date
--codec --compress --compression-type --compression-codec -z | --compression | --compression VALUE
--name --topic-name --into | --topic | --topic VALUE
--html --report-file --page | --report | kafkalog report PATH -o report.html
-o --output --out --outfile --csv --format --to --table --tsv --excel --parquet --md --markdown | --json
    | --json > FILE
--bytes --exact --raw | --json | --json, which has exact numbers
--command --show-properties | | a command is a word: kafkalog verify PATH, kafkalog cat PATH, kafkalog batches PATH
-Q | kafkalog | kafkalog lookup PATH/TOPIC-N --timestamp TIME
-C --consume -P -M | kafkalog | kafkalog cat PATH -t TOPIC, with -p N for a partition
-t --topic | kafkalog | kafkalog cat PATH -t TOPIC
-V | kafkalog | kafkalog --version
-v --verbose -q --quiet | kafkalog | put it after the command: kafkalog ls PATH -v
"""
"""Options, ``|`` and the option or command without which a row does not count, ``|`` and what to type instead.

VALUE stands for what follows. A row without a second part counts everywhere.
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
index_col parse_dates names converters low_memory = > kafkalog.read_pandas(path), and pandas from there
mode = > kafkalog.write_table(table, path, topic=name), which writes; open only reads
level compresslevel compress_level = compression_level
buffering compression_level = compression
filter query condition predicate where expression = filters
filter predicate query = drop
n nrows n_rows num_rows rows head max_records max_messages count take top row_limit = limit
usecols fields select cols column projection names = columns
time when at = timestamp
before = before_offset
to = to_offset
filesystem fs endpoint_url endpoint region credentials client = storage_options
remote remote_storage tier = tiered
value_deserializer value_type format fmt deserializer = value_format
key_deserializer key_type = key_format
registry schema schema_registry schema_registry_url = schemas
out dest destination dst target to path output_path filename = output
dryrun simulate preview = dry_run
group group_id consumer_group = groups
codec compression_type = compression
chunksize chunk_size batchsize max_batch_size = batch_size
n_threads num_threads workers n_jobs max_workers jobs parallel = threads
errors on_error ignore_errors on_bad_lines on_bad_records = on_corruption
strict verify_checksums check_crc crc = check_crcs
read_committed isolation = isolation_level
inplace = in_place
mode append incremental = resume
overwrite_existing exist_ok force = overwrite
partition_cols partitioning partition_keys = partition_by
port listener listeners advertised_listeners node_id n_nodes = nodes
retention topic_ids topic_id = settings
settings_file = metadata
include_stray = include_unknown
missing = strict
kafka_version version = release
dtype dtypes types = decode
include_internal internal_topics = internal
"""
)
"""Keyword arguments, ``=`` and the one that is meant; if a function has it."""

_LOG_ENDS: Final = {
    "start": "first_offset beginning_offset beginning_offsets low_watermark earliest",
    "end": "last_offset end_offsets high_watermark latest next_offset",
}
"""The words for attributes that are the offsets of a log's ends."""

_ATTRIBUTES: Final = (
    "\n".join(f"{end} {end}_offset {words} = log_{end}_offset" for end, words in _LOG_ENDS.items())
    + """
end_offsets beginning_offsets earliest latest watermarks get_watermark_offsets = kafkalog.ls(path)
filter where query loc iloc = kafkalog.scan(..., filters="key == abc")
select project with_columns drop rename = kafkalog.scan(..., columns=["offset", "key"])
collect lazy compute fetch load execute run read = to_table(), to_pandas() or to_polars()
limit take first nrows sample = kafkalog.scan(..., limit=10), or head(10)
fetchall fetchone rows iter_rows iterrows itertuples records messages to_pylist to_dicts to_list tolist = \
    to_table().to_pylist(), or kafkalog.cat(path) for records as objects
batches = kafkalog.batches(path) for those of the log, or to_batches() for tables
iter_batches record_batches chunks fetch_record_batch to_arrow_reader reader = to_batches(), or to_reader()
df pandas toPandas to_df to_dataframe dataframe = to_pandas()
pl polars = to_polars()
arrow to_arrow read_table table fetch_arrow_table arrow_table = to_table()
numpy values to_array = to_numpy()
count size shape num_rows n_rows nrows height length n_records num_records count_records total = count_rows()
dtypes schema fields columns collect_schema column_names names = to_table().schema, or scan(...).schema
name = topic_partition, or path
last newest = tail(1)
timestamps = to_table(columns=["timestamp"])["timestamp"]
record get at = kafkalog.lookup(path, offset=42), or kafkalog.cat(path, start_offset=42)
read_all = to_table(), to_pandas() or to_polars()
to_duckdb duckdb = kafkalog.sql("select ...", path), or duckdb.sql("select ... from scan")
info describe summary = kafkalog.ls(path), or kafkalog.report(path)
to_parquet write_parquet sink_parquet to_csv write_csv sink_csv to_json write_json to_feather write write_table \
    write_dataset to_delta write_delta save = kafkalog.export(path, "out.parquet")
group_by groupby agg aggregate join sort sort_by order_by sort_values unique distinct pivot value_counts \
    union sum mean max min = kafkalog.sql("select ...", path), or to_polars() or to_pandas() first
sql = kafkalog.sql("select ...", path)
show display print = head(20), or kafkalog.cat(path)
show display print head tail sort_values query = to_pandas(), or print() of it
consume poll subscribe consumer seek = kafkalog.cat(path), or scan(...)
get_partition partition = kafkalog.open_log_dir(path)[topic, number], or kafkalog.scan(..., partitions=0)
topic = kafkalog.scan(..., topics="orders")
partitions topic_partitions keys items = list(log_dir), or log_dir[topic, number] for one of them
lag groups consumer_groups committed = kafkalog.groups(path)
offsets = to_table(columns=["offset"])["offset"]
as_dict to_json_dict json asdict dict model_dump = to_dict()
errors problems damage issues warnings corruption is_valid is_ok valid success = ok, or findings
to_records as_numpy to_numpy = to_table(), or to_numpy() of batches of a segment
time times datetime timestamps to_datetime = datetimes()
num_rows n_rows nrows height shape size length count = n_records
unique value_counts group_by groupby nunique codes dictionary_encode drop_duplicates = factorize()
sort order_by sort_by sort_values sort_indices = argsort()
get by_name = to_pylist(), or the arrays offsets, key and value
columns names fields dtypes = keys()
is_na null_mask nulls mask tombstones = is_null()
notnull notna is_valid is_not_null = is_null(), inverted: ~column.is_null()
sizes nbytes itemsize length lens str_len value_lengths = lengths
concat append extend vstack hstack = concatenate([...])
astype to_int frombuffer as_array = as_dtype(">i8")
search find bisect searchsorted get_position = lookup([...])
to_html save_html render save show open = write("report.html")
"""
)
"""Attributes of our objects, ``=`` and what to call instead; if an object has no such attribute."""

_SAME_ATTRIBUTES: Final = """
isnull isna = is_null
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
def _rows(table: str) -> Sequence[str]:
    """The rows; one goes on in lines that are indented."""
    return re.sub(r" *\n +", " ", table.strip().replace("\\\n", "\n")).split("\n")


@cache
def commands() -> Mapping[str, Lead]:
    """The words for commands and functions."""
    found: dict[str, Lead] = {}
    for row in _rows(_COMMANDS):
        words, sign, rest = re.split(r" ([=>]) ", re.sub(r"  +", " ", row), maxsplit=1)
        line, _, python = rest.partition(" | ")
        for word in words.split():
            found.setdefault(word, Lead(line.strip(), python.strip(), sign == "="))
    return found


@cache
def _pairs(table: str) -> Mapping[str, Sequence[str]]:
    """The words before ``=``, with all that are meant, in the order of the table."""
    found: dict[str, list[str]] = {}
    for row in _rows(table):
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


def translated(argv: Sequence[str], known: Collection[str]) -> list[str]:
    """A command line with a command of ours, if its first word means the same as one, or two words are one of ours."""
    if not argv or argv[0].startswith("-"):
        return [*argv]
    if argv[0] in known:
        return [*argv]
    name, rest = plain(argv[0]), [*argv[1:]]
    if name == "run-class" and rest:  # Kafka's starter of its tools
        return translated(rest, known)
    if rest and f"{name}-{rest[0]}" in known:
        return [f"{name}-{rest[0]}", *rest[1:]]
    if name in known:
        return [name, *rest]
    if name in _VERBS and len(rest) > 1 and _is_noun(rest[0], known):  # as in list groups, show topics, get offsets
        return translated(rest, known)
    lead = _command_lead(name)
    if lead is None or not lead.is_same:
        return [*argv]
    return _line(name, lead.line.split(), rest)


def _line(name: str, ours: Sequence[str], rest: Sequence[str]) -> list[str]:
    """Our command line for a word that means the same, with the arguments that follow it."""
    if name == "help":
        return [*rest[:1], "--help"]
    if name in ("head", "tail"):  # their -n 5, -n5 and -5
        option = ours[1]
        rest = [re.sub(r"^-n(?=$|\d)|^-(?=\d+$)", f"{option}=" if one != "-n" else option, one) for one in rest]
    return [*ours, *rest]


def _is_noun(word: str, known: Collection[str]) -> bool:
    name = plain(word)
    return not _is_path(word) and (name in known or f"{name}s" in known or name in commands())


_VERBS: Final = ("list", "describe", "show", "get", "view", "display", "print", "inspect", "read")
"""Verbs of command lines that have a noun next."""


def unknown_command(argv: Sequence[str], known: Sequence[str]) -> str:
    """The end of the message about an unknown command: what to type, or the most similar command, or all of them."""
    name = plain(argv[0])
    lead = _command_lead(name)
    if _QUERY.match(argv[0]):
        return filled(f"use kafkalog sql {shlex.quote(argv[0])} PATH", argv[1:])
    if "/" in argv[0] or (lead is None and _is_path(argv[0])):
        if later := [word for word in argv[1:] if plain(word) in known or _command_lead(plain(word))]:
            return f"a command comes first: kafkalog {shlex.join(translated([later[0], argv[0]], known))}"
        return FIRST.replace("PATH", shlex.quote(argv[0]))
    if lead is None:
        meant = name if name in known else near(name, known) or near(name, commands(), 0.9)
        found = commands().get(meant, meant) if meant else _compound_lead(name, known)
        if found is None:
            topic = f"; for a topic of that name, kafkalog cat PATH -t {argv[0]}" if len(argv) == 1 else ""
            return f"there are {', '.join(known)}{topic}"
        if isinstance(found, str) or meant in known:
            return f"did you mean kafkalog {meant or found}?"
        lead = found
    line = f"kafkalog {lead.line} PATH" if lead.is_same else lead.line
    return f"use {filled(_searched(line, argv[1:]), argv[1:])}"


def _searched(line: str, typed: Sequence[str]) -> str:
    """The line for a search, as the flags of grep change it."""
    if "(or 'value contains WORD')" not in line:
        return line
    flags = "".join(flag for flag in typed if re.fullmatch(r"-[a-zA-Z]+|--(?:invert-match|ignore-case)", flag))
    words = [word for word in _arguments(typed)[0] if re.fullmatch(r"[\w.:-]+", word) and not _is_path(word)]
    negated = "not " if re.search(r"-\w*v", flags) else ""
    folded = "(?i)" if re.search(r"-\w*i(?!nv)", flags) else ""
    if folded or len(words) > 1:
        return f"kafkalog cat PATH --filter \"{negated}value matches '{folded}{'|'.join(words) or 'WORD'}'\""
    return "kafkalog cat PATH --filter 'key != WORD' (or 'not value contains WORD')" if negated else line


FIRST: Final = "a command comes first: kafkalog ls PATH, kafkalog cat PATH, kafkalog report PATH"
_QUERY: Final = re.compile(r"(?i)\s*(?:select|with|from|describe|show|summarize)\s+\S")
_BRITISH: Final = ((r"yse(?=\b|-)", "yze"), (r"is(e|ed|ing|ation)(?=\b|-)", r"iz\1"), (r"our(?=\b|-|ed)", "or"))


def american(word: str) -> str:
    """A word in the spelling of the tables.

    >>> american("summarise"), american("--no-colour"), american("analyse")
    ('summarize', '--no-color', 'analyze')
    """
    for british, spelt in _BRITISH:
        word = re.sub(british, spelt, word)
    return word


def _command_lead(name: str) -> Lead | None:
    spellings = (name, american(name), f"{name}s", name.removesuffix("s"))
    return next((commands()[word] for word in spellings if word in commands()), None)


def _compound_lead(name: str, known: Collection[str]) -> str | Lead | None:
    """The command, or the lead, that a part of a compound stands for: its verb, if that is known."""
    parts = name.split("-")
    if len(parts) > 1:
        for part in parts:
            if part in known or f"{part}s" in known:
                return part if part in known else f"{part}s"
            if lead := _command_lead(part):
                return lead
    return None


def unexpected(argument: str, command: str, before: Sequence[str]) -> str:
    """The end of the message about an argument too many; "" if nothing is known."""
    paths = shlex.join([word for word in before if _is_path(word)][:1]) or "PATH"
    if _QUERY.match(argument):
        return f"; kafkalog sql {shlex.quote(argument)} {paths}"
    if command == "cat" and argument.startswith("."):
        return f"; kafkalog cat {paths} --json | jq {shlex.quote(argument)}"
    if command == "cat" and _CONDITION.search(argument):
        return f"; --filter {shlex.quote(argument)}"
    return ""


def filled(line: str, typed: Sequence[str]) -> str:
    """A command line with the path, the word or condition, and the topics that were typed."""
    arguments, topics = _arguments(typed)
    paths = [argument for argument in arguments if _is_path(argument)]
    topics += [word for word in arguments if word not in paths and _is_topic(word, paths)]
    others = [argument for argument in arguments if argument not in (*paths, *topics)]
    conditions = [argument for argument in others if _CONDITION.search(argument)]
    words = [argument for argument in others if re.fullmatch(r"[\w.:-]+", argument)]
    if conditions:
        line = re.sub(r"'key == WORD'(?: \(or 'value contains WORD'\))?", lambda _: shlex.quote(conditions[0]), line)
    elif words:
        line = line.replace("WORD", words[0])
    line = _with_topics(line, [*dict.fromkeys(topics)])
    return line.replace("PATH", shlex.quote(paths[0])) if paths else line


def _is_topic(word: str, paths: Sequence[str]) -> bool:
    return any(_is_path(f"{path}/{word}-0") for path in paths)


def _with_topics(line: str, topics: Sequence[str]) -> str:
    if topics:
        table = topics[0] if topics[0].isidentifier() else f'"{topics[0]}"'
        line = re.sub(r"\b(from|describe) TOPIC", rf"\1 {table}", line.replace(" -t TOPIC", ""))
        line = line.replace("TOPIC", topics[0])
    for topic in topics:
        line = re.sub(r"(kafkalog (?:cat|convert|export|ls) PATH)\b", rf"\1 -t {topic}", line)
    return line


def with_output(command: str, argv: Sequence[str], valued: Collection[str], writes: str) -> str:
    """The end of a message, with ``-o`` before the path that is meant as an output; "" if none is.

    That is one that is named as a table or a page, or the only one that does not exist. `valued` are the options that
    take values, and `writes` is what the help calls the output.
    """
    words = _positional(argv, valued)
    tables = [word for word in words if _WRITTEN.fullmatch(word) and writes != "LOG_DIR"]
    outputs = tables or [word for word in words if not _is_path(word) and writes not in ("", "FILE")]
    if len(outputs) != 1 or len(words) == 1:
        return ""
    line = shlex.join([*(word for word in argv if word != outputs[0]), "-o", outputs[0]])
    if tables and writes not in ("FILE", "TO"):
        return f"; to write a table: kafkalog export {line}"
    return f": {command} {line}"


def _positional(argv: Sequence[str], valued: Collection[str]) -> list[str]:
    return [word for last, word in itertools.pairwise(["", *argv]) if not word.startswith("-") and last not in valued]


_WRITTEN: Final = re.compile(r"[^-].*\.(parquet|arrows?|feather|csv|jsonl|ndjson|html|md)(\.gz|\.zst)?")


def _is_path(argument: str) -> bool:
    return "://" in argument or os.path.exists(argument)


def _arguments(typed: Sequence[str]) -> tuple[list[str], list[str]]:
    """Positions and values of options that were typed, and the names of topics among the latter."""
    arguments: list[str] = []
    topics: list[str] = []
    for before, argument in itertools.pairwise(["", *typed]):
        if argument.startswith("-"):
            continue
        is_topic = before in ("-t", "--topic", "--topics") and re.fullmatch(r"[\w.*-]+", argument)
        (topics if is_topic else arguments).append(argument)
    return arguments, topics


def unknown_option(name: str, value: str, command: str, own: Collection[str]) -> str | None:
    """What to type instead of an option of another tool; None if nothing is known.

    Parameters
    ----------
    name : str
        The option as it was typed, without its value.
    value : str
        What follows.
    command : str
    own : collection of str
        The options of the command.
    """
    name = american(name.replace("_", "-")) if name.startswith("--") else name
    if not name.startswith("--") and len(name) > 2 and name[2:].isdecimal():
        value = name[2:]  # as in -c5
    spelt = "-f%" if name == "-f" and "%" in value else name if name.startswith("--") else name[:2]
    where, kind = {"", command, *own}, _kind(value)
    for typed in (_BY_VALUE.get((spelt, kind), set()), {name}, {spelt}):
        for row in _rows(_OPTIONS):
            words, needs, text = (part.strip() for part in row.split("|", 2))
            if command == "kafkalog" and text.startswith("leave it out"):
                continue  # without it, there would be no command either
            if needs in where and not typed.isdisjoint(words.split()):
                return _with_value(text, re.sub(r"^-(?=\d+$)|^[se]@", "", value))
    return None


_SINCE: Final = ("--since", "--last", "--ago", "--newer-than", "--within")
_FORMATS: Final = ("--to", "--format", "--output-format", "--to-format", "--target-format")
_BY_VALUE: Final = {
    **{(name, "file"): {"--outfile"} for name in ("--to", "-o", "--output", "--out")},
    **{(name, "time"): {"--since-time"} for name in _SINCE},
    **{(name, kind): {f"-o-{kind}"} for name in ("-o", "--offset") for kind in ("from-end", "from-time", "to-time")},
    **{(name, kind): {f"--to-{kind}"} for name in _FORMATS for kind in ("table", "json")},
    **{("-r", kind): {"-r-raw"} for kind in ("time", "number")},
    **{(name, "condition"): {"--exclude-condition"} for name in ("--exclude", "--not", "--ignore")},
    ("-X", "isolation"): {"-X-isolation"},
    ("--last", "number"): {"--last-n"},
}
"""By option and the kind of its value: the word of another row, where the value says that this is meant."""


def _kind(value: str) -> str:
    """What the value of an option is: a number, a duration (``1h``), a file, or else a time."""
    if value.isdecimal():
        return "number"
    if re.fullmatch(r"-\d+", value):
        return "from-end"
    if re.match(r"[se]@", value):  # kcat's times
        return "from-time" if value[0] == "s" else "to-time"
    if value.lower() in _TABLE_FORMATS:
        return "json" if "json" in value.lower() else "table"
    if value.startswith("isolation.level"):
        return "isolation"
    if DURATION.fullmatch(value):
        return "duration"
    if _CONDITION.search(value):
        return "condition"
    return "file" if re.search(r"/|\.(?!\d)", value) else "time"


_TABLE_FORMATS: Final = ("parquet", "csv", "json", "jsonl", "ndjson", "arrow", "feather", "delta", "iceberg")
_CONDITION: Final = re.compile(r"(?i)[=<>]|\s(?:in|is|like|contains|matches|starts_with|has|between)\s")


def _with_value(text: str, value: str) -> str:
    """A text with the value that was typed; a value that is a condition stands for a whole one."""
    if not value or value.startswith("-"):
        return text
    if _CONDITION.search(value):
        return re.sub(r"'[^']*\bVALUE'", lambda _: shlex.quote(value), text)
    return text if "'" in value else text.replace("'COLUMN OP VALUE'", f"'key == {value}'").replace("VALUE", value)


def documented_keywords(function: FunctionType) -> list[str]:
    """The parameters that the docstring of a function lists; those after a star may be in another function."""
    names = re.findall(r"^ {4}(\w+(?:, \w+)*) : ", function.__doc__ or "", re.MULTILINE)
    own = function.__code__.co_varnames[: function.__code__.co_argcount + function.__code__.co_kwonlyargcount]
    return list(dict.fromkeys([*own, *(name for line in names for name in line.split(", "))]))


def unknown_keyword(name: str, known: Collection[str]) -> str:
    """The end of the message about an unknown keyword argument: the one that is meant, or all of them."""
    if name in ("tiered", "tiered_keys", "storage_options", "filesystem") and name not in known:
        option = "storage_options" if name == "filesystem" else name
        return f"use {option}=" if option in known else f"pass kafkalog.open(path, {option}=...) as the path"
    if name in ("partition", "partition_id") and "partitioner" in known:
        return "partitions= is their number; a column partition has that of each record (0 by default)"
    if name in ("output", "html", "html_path") and name not in known and "config" in known:
        return "the result has write(path), to_html(), to_markdown() and to_dict()"
    if meant := _meant_keywords(name, known):
        return f"use {' or '.join(meant)}"
    close = near(name, [*known])
    return f"did you mean {close}=?" if close else f"there are {', '.join(known) or 'none'}"


def _meant_keywords(name: str, known: Collection[str]) -> list[str]:
    leads = _pairs(_KEYWORDS).get(name) or _pairs(_KEYWORDS).get(american(name), ())
    return [f"{one}=" for one in leads if one in known] or [one[2:] for one in leads if one.startswith("> ")]


def wrong_arguments(function: FunctionType, message: str) -> str | None:
    """What to type after Python's own message about too many arguments by position, or too few; None for others."""
    positional = function.__code__.co_varnames[: function.__code__.co_argcount]
    if re.search(r" takes .*positional arguments? but ", message):
        others = [f"{name}=" for name in documented_keywords(function) if name not in positional]
        named = ", ".join(others[:_SHOWN_KEYWORDS]) + (" ..." if len(others) > _SHOWN_KEYWORDS else "")
        return f"{function.__name__} takes {' and '.join(positional)} by position, and the others by name: {named}"
    if missing := re.search(r" missing \d+ required .*argument", message):
        purpose = (function.__doc__ or "").strip().split("\n")[0].split(". ")[0].rstrip(".")
        names = [f"{name}=" for name in re.findall(r"'(\w+)'", message[missing.end() :])]
        reads = "; kafkalog.read_table(path) reads a log" if function.__name__ in ("load", "write_table") else ""
        return f"{function.__name__} needs {' and '.join(names)} ({function.__name__}: {purpose}{reads})"
    return None


_SHOWN_KEYWORDS: Final = 6


def unknown_function(name: str, known: Iterable[str]) -> str | None:
    """The end of the message about an unknown name of the package; None if nothing is meant."""
    alike = _alike(name, known)
    lead = _command_lead(plain(re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name))) or _command_lead(plain(name))
    if lead is not None and name.lower() not in map(str.lower, alike):
        return f"use kafkalog.{lead.python.replace(', or ', ', or kafkalog.').replace('; ', '; kafkalog.')}"
    reads = re.fullmatch(r"(?:read|scan|from|open|load|iter)_(\w+)", name)
    if reads is not None and reads[1] in _READERS:
        return _READERS[reads[1]]
    if close := near(name, alike):
        return f"did you mean kafkalog.{close}?"
    if re.search(r"(?:Error|[Ee]xceptions?)$", name):
        return "the errors are in kafkalog.errors; KafkalogError is the base of all"
    return _READ if reads is not None else None


def _alike(name: str, known: Iterable[str]) -> list[str]:
    """The names that differ in case only, or else those of classes for a class, and of functions for a function."""
    names = [*known]
    same = [one for one in names if one.lower() == name.lower()]
    return same or [one for one in names if one[0].isupper() == name[0].isupper()]


_READ: Final = "use kafkalog.read_table(path)"


_READERS: Final = {
    "polars": "use kafkalog.read_polars(path)",
    "topic": "use kafkalog.open_log_dir(path)[topic]",
    "dataframe": "use kafkalog.read_pandas(path)",
    "arrow": _READ,
    "json": "kafkalog.read_table(path, value_format='json') decodes values; kafkalog.load(file, output, topic=name)"
    " writes a file of JSON lines as a log",
    "parquet": "kafkalog.load(file, output, topic=name) writes a Parquet file as a log",
    "csv": "kafkalog.load(file, output, topic=name) writes a CSV file as a log",
    "batches": "use kafkalog.batches(path) for those of the log, or kafkalog.scan(path).to_batches() for tables",
    "numpy": "use kafkalog.scan(path).iter_numpy()",
}


def same_attribute(value: object, name: str) -> str | None:
    """The attribute of one of our objects that has another name in other libraries; None for any other name."""
    known = object.__dir__(value)
    return next((meant for meant in _pairs(_SAME_ATTRIBUTES).get(name, ()) if meant in known), None)


def unknown_attribute(value: object, name: str) -> str | None:
    """The end of the message about an unknown attribute of one of our objects; None if nothing is meant."""
    inherited = dir(list) if isinstance(value, list) else ()
    known = [one for one in object.__dir__(value) if not one.startswith("_") and one not in inherited]
    is_log = not {"scan", "target"}.isdisjoint(known)
    if meant := _meant_attribute(name, known, is_log=is_log):
        return f"use {meant}"
    if close := near(name, known):
        return f"did you mean {close}?"
    if is_log:
        return unknown_function(name, ())
    item = "each item of the list has more names; " if isinstance(value, list) else ""
    return f"{item}there are {', '.join(known)}" if len(known) <= _MOST_NAMES else None


def _meant_attribute(name: str, known: Collection[str], *, is_log: bool) -> str | None:
    for meant in _pairs(_ATTRIBUTES).get(name, ()):
        # what reads records can be asked for other records; a report cannot
        of_log = is_log and meant.startswith("kafkalog.")
        if of_log or re.split(r"\W", meant)[0] in known or (meant.startswith("list(") and "topics" in known):
            return meant
    return f"kafkalog.{name}(path)" if is_log and name in _log_functions() else None


_MOST_NAMES: Final = 24


@cache
def _log_functions() -> Collection[str]:
    """The public functions, most of which take the path of a log."""
    names = sys.modules["kafkalog"].__all__
    return {name for name in names if name.islower() and not name.startswith(("open", "write", "load"))}
