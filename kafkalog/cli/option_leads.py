"""Options in words of other tools: what they stand for here, or what to type instead.

A row of the table is used only for commands that have the option, or the name, in its second part.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kafkalog.cli.leads import filled
from kafkalog.cli.terminal import is_redirected
from kafkalog.cli.typed import (
    CONDITION,
    FORMATS_OF_VALUES,
    LINE,
    RANGE,
    Advice,
    arguments,
    is_path,
    is_topic,
    kind_of,
    put,
    shown,
    with_unit,
)
from kafkalog.column_names import ALL_COLUMNS
from kafkalog.interchange.file_types import FORMAT_NAMES, STREAM_FORMATS
from kafkalog.words import american, rows


class Instead(NamedTuple):
    """What to type instead of an option."""

    text: str
    lines: Sequence[str] = ()
    """What follows the message, on lines of its own."""
    words: Sequence[str] | None = None
    """What stands in its place in a command line; None if that is for the reader to fill in."""
    takes_value: int = False
    """How many of the next words are its value."""
    command: str | None = None
    """The command that has this, if it is another."""

    @property
    def said(self) -> str:
        """The text as a clause of a message."""
        return f"use {self.text}" if self.text.startswith("-") or self.command else self.text


_OPTIONS: Final = r"""
-X-isolation | --isolation-level | --isolation-level read_committed
-X --consumer-property --consumer-config --command-property | | leave it out: settings of clients do not count here
-b --bootstrap-server --broker-list --brokers --zookeeper --host --endpoints -P --command-config
    | | leave it out: kafkalog reads files, not brokers; name a log dir, such as /var/lib/kafka
--file --files | kafkalog | kafkalog dump VALUE, or kafkalog cat VALUE
--file --files --path --paths --input --log-dirs --log-dir --logdir --dir --directory --data-dir -i --db
    | | pass PATH without an option
-o-from-time | --start-timestamp | --start-timestamp VALUE
-o-to-time | --end-timestamp | --end-timestamp VALUE
-o-from-end | --tail | --tail VALUE
-o-start | --start-offset | leave it out: all records are read, from the first one
-o-stop | --tail | --tail 0 --follow
-o --offset | --start-offset | --start-offset N, or --tail N for the last N records; all by default
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
--csv | export | -o FILE.csv
--tsv --excel --xlsx | export | -o FILE.csv, which has commas
--parquet --pq | export | -o FILE.parquet
--arrow --arrows --feather --ipc | export | -o FILE.arrow
--jsonl --ndjson --json --json-lines -J | export | -o FILE.jsonl
--csv --tsv --excel --xlsx | --columns | kafkalog export PATH -o FILE.csv, or --json
-o-json | --json | --json
-o-table | --columns | kafkalog export PATH -o FILE.VALUE
-o-wide | --json | leave it out: --json has all columns
--tail-from --skip --skip-offsets --skip-records --offset-from | --start-offset | --start-offset N
--sort --sort-by --order-by | --columns | kafkalog sql 'select * from TOPIC order by COLUMN' PATH
--count --count-only --wc | -n | kafkalog export PATH --dry-run (it counts records); -n N reads some
-F --retry | --follow | --follow
--limit -n -c --count --head --max --max-messages --max-records --num --first --take --rows --top | dump
    | leave it out (of all lines, head -n VALUE shows the first; of records, kafkalog cat PATH -n VALUE)
--csv | groups | -o out.csv
--format --output-format --as --to | groups | -o VALUE
--max --max-lag --min-lag --threshold --fail-above --lag-above --lag-threshold --alert --warn --critical | groups
    | --json, and jq -c 'select(.lag > VALUE)' for the groups that are further behind
-0 --print0 --null-data | | leave it out: each record ends with a line
--deleted --nulls --null-values --tombstone --tombstones --only-tombstones | --filter | --filter 'value is null'
-A -B --context | --start-offset | --start-offset N --end-offset N
--json-value --json-values --parse-json --decode-json | --value-format | --value-format json
--value-as | --value-format | --value-format VALUE
--key-as | --key-format | --key-format VALUE
--uncommitted --read-uncommitted | --isolation-level | leave it out: records are read whether committed or not
--internal --include-internal --system --all-topics | ls | leave it out: all topics are listed
--width --max-width --wide --wrap --no-trunc --no-truncate --term-width | |
    --json for whole values, or COLUMNS=N kafkalog ... for a width
--tz --timezone --time-zone --local-time --local --utc | --json | leave it out: times are UTC; --json has milliseconds
--level | --compression-level | --compression zstd --compression-level VALUE
--rename --new-name --topic | convert | kafkalog export PATH --isolation-level read_committed -o FILE.parquet, then \
    kafkalog load FILE.parquet -o DIR --topic NAME
--timestamp --ts --time | --timestamp-column | --timestamp-column VALUE
-K -D --key-delimiter --key-separator --line-delimiter --parse.key | load | lines such as KEY:VALUE become a table \
    with jq -Rc 'capture("(?<key>[^:]*):(?<value>.*)")' FILE > lines.jsonl, then kafkalog load lines.jsonl -o DIR \
    --topic TOPIC --encoding utf8
-l --lines --text --plain --raw | load | lines of text become a table with jq -Rc '{value: .}' FILE > lines.jsonl, \
    then kafkalog load lines.jsonl -o DIR --topic TOPIC --encoding utf8
-t --topics --table | load | --topic VALUE
--table | export | leave it out: databases are not written, and -t chooses a topic
--csv --parquet --json-lines --arrow --arrows --jsonl --ndjson --from --source | load | pass PATH without an option
--sep --separator --delimiter --delim -d --quote --quotechar | load
    | leave it out: the delimiter is found in the first line: comma, semicolon, tab or pipe
--header --headers --no-header --skip-rows --skiprows --names | load | leave it out: the first line has the names
--sort --sort-by --order-by --order | load | leave it out: records keep the order of the file
--sep --separator --delimiter --delim --header --headers --no-header --index --no-index | export
    | leave it out: CSV has commas, and the names in its first line
--group-by --groupby --aggregate --agg | --columns | kafkalog sql 'select VALUE, count(*) from TOPIC group by all' PATH
-n --no-op --noop --dry-run --read-only | verify | leave it out: verify only reads
-p --partition --partitions | trim | the path of one partition is PATH/TOPIC-N
-p --partition --partitions | truncate | the path of one partition is PATH/TOPIC-N
--dry-run --dryrun | groups | leave it out: groups only reads
--no-crc --skip-crcs --no-crcs --index-sanity-check --verify-index-only --indexes | verify | --indexes-only
--only-errors --errors-only --failures --quiet-ok --brief | verify | -q
--names-only --name-only --names | --json | --json, and a pipe into jq
--crc --crcs --check-crcs --check-crc | verify | leave it out: checksums are checked
--fail-fast --exit-first --stop-on-error -x | verify | leave it out: the exit code is 1 if there is damage
--progress --no-progress --bar --no-bar | -q | leave it out: it shows on a terminal; -q hides it
--timeout-ms --timeout --poll-timeout --session-timeout | | leave it out: files are read to their end
--query --execute -e | sql | the query comes first: kafkalog sql 'select ...' PATH
--sample --every | -n | -n VALUE, or kafkalog sql 'select ... using sample 10' PATH
--reverse --desc --tac --order | --tail | kafkalog sql 'select * from TOPIC order by timestamp desc limit N' PATH, the \
    newest first (--tail N has the last N of each partition, oldest first)
--jq -q-jq | --value-format | --json --value-format json, and a pipe into jq VALUE
--pretty --indent --jq | --json | --json, and a pipe into jq
--color --no-color --no-headers --no-header --tree --recursive --unit --units --by | | leave it out
--retention | boot | --set 'TOPIC:retention=as-was' for the old retention, --set TOPIC:retention.ms=MS for a time; \
    retention is off by default
--missing | boot | leave it out: missing partitions begin at their highest known offset; --strict refuses them
--copy --threads | boot | leave it out: blocks are shared where the file system can, and all processors are used
--topic-id | boot | --set TOPIC:topic.id=ID
--settings | boot | --metadata VALUE
--node-id --broker-id --id | boot | leave it out: nodes have the ids 1 to N, or those of --nodes VALUE@HOST:PORT
--print-records --print-data --print-values --deserialize --decode --show-records | dump | --print-data-log
--batches --print-batches --batch-headers | dump | leave it out: batches are printed
--stat --numstat --shortstat --count | diff | --content
-r -R --recursive | diff | --content
--summary --brief --unified -u | diff | leave it out: the first difference is shown; --content counts what differs
--summary --stats --summarize --total | ls | leave it out: the last line has the sums
--topic --topics -t | undelete | leave it out: what is found is written by topic
--messages | --message | leave it out: all records are read
--all --everything | | leave it out: all is read unless -t or -p choose
--quick --fast --headers-only | verify | --indexes-only
--reset-offsets --to-earliest --execute --delete-offsets --shift-by | groups
    | groups are only read here: kafkalog groups PATH -o offsets.csv saves their offsets, and kafka-consumer-groups.sh \
    --bootstrap-server HOST:PORT --group GROUP --all-topics --reset-offsets --to-earliest sets a cluster's with \
    --execute
--lag --offsets | groups | leave it out: each line has the committed offset and the lag
--find-hanging --find --stuck | --hanging | --hanging
--ongoing --state --status --states --incomplete --unfinished | --hanging
    | --open for those that are open, --hanging for those that hang
--abort --commit | transactions | leave it out: each hanging transaction is listed with the command that ends it
--days --hours --older-than --keep-days --max-age | --retention-ms | --before-timestamp TIME, or --retention-ms MS
--ts --time --when --date --at | --timestamp | --timestamp TIME
--key --value | lookup | kafkalog cat PATH --filter 'key == VALUE'
--grep | lookup | kafkalog cat PATH --filter 'key contains VALUE or value contains VALUE'
--to-table --to-json | export | --format VALUE
--header --headers --no-header --column --line --box --list --mode --table --markdown --ascii --html --quote \
    --tabs | sql
    | leave it out: the first line has the names; --csv, --json or -o FILE choose another form
--sql --query --where | export | kafkalog sql 'select ...' PATH -o FILE
--key-contains --key-like --key-match --key-search | --filter | --filter 'key contains VALUE'
--value-contains --value-like --value-match --value-search | --filter | --filter 'value contains VALUE'
--key-regex --key-matches | --filter | --filter 'key matches "VALUE"'
--value-regex --value-matches | --filter | --filter 'value matches "VALUE"'
--jsonpath --json-path --path-expression --pointer | --value-format
    | --value-format json --columns value.FIELD, and --filter 'value.FIELD > 5'
--readonly --read-only --ro | | leave it out: PATH is never changed without --in-place
-f --file --init --input -i --read | sql | give the query itself: -c "$(cat FILE)"
-c -e --query --sql --execute --command | kafkalog | kafkalog sql 'VALUE' PATH
-t --topic --topics -p --partition --partitions | dump | leave it out: the files of a topic are PATH/TOPIC-N/*.log
--search --match --pattern --grep | ls | -t '*VALUE*'
--schema-file --avsc --proto --schema-path | --schema | --schema VALUE
--deserialize --deser --codec-value --decoder | --value-format | --value-format avro (or json, protobuf, utf8)
-r -R --recursive | verify | leave it out: all below a directory is read
-O --newest | --tail | --tail N
--last-n | --tail | --tail VALUE
-c --count --max-messages --head --top --first --lines --max --take --read-num --max-records --num --rows --nrows --size
    --max-lines --max-rows --max-results --messages --num-records --num-messages --num-rows | -n | -n VALUE
-c --cols --column-names | --columns | --columns VALUE
--limit -n -c --count --head --max --max-messages --max-records --num --lines --first --take --rows --top --max-lines
    --max-rows | --limits
    | leave it out, or pipe it into head -n VALUE
-J --jsonl --output-json --ndjson -w --write-out --output-format | --json | --json
-f% --format --fmt --template --property --formatter --formatter-property --output-hex --hex -F | --columns
    | --columns offset,key,value, or --json
--keys-only --key-only --no-value --no-values --hide-value | --columns | --columns offset,key
--values-only --value-only --no-key --no-keys --only-values --payload-only | --columns
    | --columns value for values alone, or --json --value-format json, and a pipe into jq -c .value
--fields --select --usecols --cut --col | --columns | --columns key,value
-K -D -Z --delimiter --print-key --print-value --print-offset --print-timestamp --print-partition --print-headers --null
    | --columns | --columns offset,key,value, or --json
--key --key-equals --where-key -k | --filter | --filter 'key == VALUE'
--grep -g | --filter | --filter 'key contains VALUE or value contains VALUE'
--delete --erase --remove --exclude-key | --drop | --drop 'key == VALUE'
--value --contains --match --pattern --search | --filter | --filter 'value contains VALUE'
--prefix --from-key --key-prefix | --filter | --filter "key starts_with VALUE"
--header --headers | --filter | --filter 'headers.NAME == VALUE'
--where --query --condition --predicate --expr | --filter | --filter 'COLUMN OP VALUE'
--where -e --drop-where --delete-where --exclude-condition | --drop | --drop 'COLUMN OP VALUE'
--since-time | --start-timestamp | --start-timestamp TIME, such as 2026-11-28, or -1d for a day before now
--since --last --ago --newer-than --within -S | --start-timestamp
    | --start-timestamp -VALUE before now, or end-VALUE before the end of the log
--until --older-than -U | --end-timestamp | --end-timestamp TIME
--time --timestamp --from-time --date --after --start-time | --start-timestamp | --start-timestamp TIME
--time --date | --timestamp | --timestamp TIME
--avro-file | --value-format | --value-format avro --schema VALUE
--protobuf-file | --value-format | --value-format protobuf --schema VALUE
-s --value-deserializer --deserializer --decode --serde --value-type --avro --protobuf | --value-format
    | --value-format avro (or json, protobuf, utf8)
--key-deserializer --key-type | --key-format | --key-format utf8 (or json, avro)
-r-raw --raw --raw-output --raw-values --slurp | --columns
    | --columns value for values alone, or --json --value-format json, and a pipe into jq -c .value
-r --registry --registry-url --schema-registry-url | --schema-registry | --schema-registry URL
-s -sh -hs -lh -l -a -c -d --total --max-depth --summarize
    | space | leave it out: it has totals, and human sizes on a terminal
-S -lS -lhS -lSh -hlS -Sl -Slh -Shl -Sh -lSr -lhSr -lrS -Sr -Srh -Slr | ls | kafkalog space PATH, which sorts by size
-l -lh -la -a -1 --long --all --human --human-readable -r -R | ls
    | leave it out: ls has sizes, times and all topics; -s lists segments
--human-readable | | leave it out
--sort-size --sort | ls
    | kafkalog space PATH, which sorts by size; or --json, and sort with jq -s 'sort_by(.size_in_bytes)'
--sort --sort-by --order-by --order --reverse | groups | --json, and sort with jq -s 'sort_by(.lag)'
--sort --sort-by --order-by --order | --json | --json, and sort with jq -s 'sort_by(.FIELD)'
--endpoint-url --endpoint --s3-endpoint --host-url | --storage-option | --storage-option endpoint=VALUE
--region --aws-region | --storage-option | --storage-option region=VALUE
--no-sign-request --anonymous --no-sign --anon | --storage-option | --storage-option skip_signature=true
--profile --aws-profile --credentials --access-key --secret-key | --storage-option
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
--describe --list --show --scan --print -l | undelete | --dry-run
--version --version-id --versions --schema-version --all-versions | schemas | leave it out: all versions are listed
--latest --current --latest-only --newest | schemas | --json, which has a line per version, the latest last
--changes | metadata | --history
--key --key-field --key-name | --key-column | --key-column VALUE
--value --value-field | --value-column | --value-column VALUE
--describe --list --all --show --all-topics --topics-with-overrides -L | | leave it out
-E --regex --regexp --re -P | --filter
    | --filter 'key matches "VALUE" or value matches "VALUE"' (-t takes globs of topics)
--regex --include --whitelist --topic-pattern --only | --topics | --topics VALUE (names or globs)
--exclude | --drop | --drop 'key == VALUE' for records, --exclude-topics VALUE for topics
--exclude --blacklist --not --ignore --skip-topics | --exclude-topics | --exclude-topics VALUE
--skip-errors --skip-message-on-error --ignore-errors --keep-going --skip-corrupt --on-error --lenient --errors --strict
    | --on-corruption | --on-corruption skip
--no-verify --no-checksum --skip-crc | --no-check-crcs | --no-check-crcs
--deep-iteration --full --thorough --verify-checksum --checksum --all-checks | verify | --deep
--deep-iteration | | leave it out
--strict | verify | leave it out: any damage makes the exit code 1
--fix --repair --auto -y -f --yes
    | verify | kafkalog verify PATH, whose next: line is the way to a log that a broker serves
--dry --simulate --plan --preview --check --noop --what-if -N --dryrun --trockenlauf | --dry-run | --dry-run
--force --replace -y --yes --clobber | --overwrite | --overwrite
--force --inplace -y --yes --overwrite --execute | --in-place | --in-place
--in-place --inplace | --output | -o DIR: PATH is never changed, this command makes a copy
--mode --append --incremental --continue | --resume | --resume
--jobs -j --workers --parallel --parallelism --cores --concurrency --num-threads | --threads | --threads VALUE
-j | --json | --json
--silent -s | | -q
--debug --trace --log-level | | -v
--committed --read-committed | --isolation-level | --isolation-level read_committed
--compacted --dedup --unique --distinct | --latest | --latest key
--partition-cols --hive --partition | --partition-by | --partition-by topic,date
--codec --compress --compression-type --compression-codec -z | --compression | --compression VALUE
--name --topic-name --into | --topic | --topic VALUE
--html --report-file --page | --report | kafkalog report PATH -o report.html
-o --output --out --outfile --csv --format --to --table --tsv --excel --parquet --md --markdown | --json
    | --json > FILE
--bytes --exact --raw | --json | --json, which has exact numbers
--command --show-properties | | a command is a word: kafkalog verify PATH, kafkalog cat PATH, kafkalog batches PATH
-Q | kafkalog | kafkalog lookup PATH/TOPIC-N --timestamp TIME
-L --list --describe | kafkalog | kafkalog ls PATH
-C --consume -P -M | kafkalog | kafkalog cat PATH -t TOPIC, with -p N for a partition
-t --topic | kafkalog | kafkalog cat PATH -t TOPIC
-V | kafkalog | kafkalog --version
-v --verbose -q --quiet | kafkalog | put it after the command: kafkalog ls PATH -v
"""
"""Options, ``|`` and the option or command without which a row does not count, ``|`` and what to type instead.

VALUE stands for what follows. A row without a second part counts everywhere.
"""


def unknown_option(
    name: str,
    value: str,
    command: str,
    own: Mapping[str, bool],
    typed: Sequence[str],
    *,
    is_joined: bool = False,
    is_valid: Callable[[Sequence[str]], bool] = lambda words: True,
) -> Instead | None:
    """What to type instead of an option of another tool; None if nothing is known.

    Parameters
    ----------
    name : str
        The option as it was typed, without its value.
    value : str
        What follows; with `is_joined`, it is the value in any case.
    command : str
    own : mapping of str to bool
        The options of the command, and whether each takes a value.
    typed : sequence of str
        The whole command line.
    is_valid : callable
        Whether the command takes options with their values; those that it does not take are not what is meant.
    """
    if name.replace("_", "-") in _RANGES and not is_joined and (between := _between(name, own, typed)):
        return between
    refused: Instead | None = None
    for found in _leads(name, value, command, own, typed, is_joined=is_joined):
        if found.words and not found.command and not is_valid(found.words):
            refused = refused or found
        elif found.words or refused is None:
            return found
        else:
            break
    if refused is None or not refused.words:
        return None
    return Instead(f"{refused.words[0]} VALUE ({value} is none)", takes_value=refused.takes_value)


def _leads(
    name: str, value: str, command: str, own: Mapping[str, bool], typed: Sequence[str], *, is_joined: bool
) -> Iterator[Instead]:
    """What the rows about an option say, those that its value says are meant first."""
    name = american(name.replace("_", "-")) if name.startswith("--") else name
    if not name.startswith("--") and len(name) > 2 and name[2:].isdecimal():
        value, is_joined = name[2:], True  # as in -c5
    spelt = "-f%" if name == "-f" and "%" in value else name if name.startswith("--") else name[:2]
    where, kind = {"", command, *own}, kind_of(value)
    # sqlite3 has -box
    for words in (_meant_by_value(spelt, kind, command), {name}, {f"-{name}"}, {spelt}):
        for row in rows(_OPTIONS):
            others, needs, text = (part.strip() for part in row.split("|", 2))
            # without the option, there would be no command either
            is_left_out = command == "kafkalog" and text.startswith("leave it out")
            if needs in where and not words.isdisjoint(others.split()) and not is_left_out:
                yield _instead(text, spelt, value, own, typed, is_joined=is_joined)


_RANGES: Final = ("--between", "--range", "--offsets", "--time-range", "--period", "--times", "--offset-range")
"""Options of other tools with two values: a start and an end, of offsets or of times."""


def _between(name: str, own: Mapping[str, bool], typed: Sequence[str]) -> Instead | None:
    """The options for a start and an end, as two words or with ``..`` or a comma between; None for other words."""
    from kafkalog.parsing import meant_time

    words = typed[typed.index(name) + 1 :] if name in typed else []
    two = [*words[:1]] if not words else re.split(r"\.\.|,|(?<=\d)/(?=\d)", words[0])
    n_taken = 1
    if len(two) == 1:
        two, n_taken = [*words[:2]], 2
    times = [None if re.fullmatch(r"-\d+", one) else meant_time(one) for one in two]
    if len(two) != 2 or None in times:
        return None
    if all(one.isdecimal() and len(one) < _DIGITS_OF_TIMES for one in two):
        what, text = "offset", f", which leaves out {two[1]} itself"
    else:
        what, text, two = "timestamp", "", [str(one) for one in times]
    options = [f"--start-{what}", two[0], f"--end-{what}", two[1]]
    return Instead(f"{shown(options)}{text}", words=options, takes_value=n_taken) if options[0] in own else None


_DIGITS_OF_TIMES: Final = 12
"""Numbers of as many digits are milliseconds rather than offsets."""


def _instead(
    text: str, name: str, value: str, own: Mapping[str, bool], typed: Sequence[str], *, is_joined: bool
) -> Instead:
    takes = not is_joined and _is_value(value, name, text, typed)
    value = with_unit(name, value)
    if takes or is_joined:
        text = _with_value(_with_columns(_fitting(text, value), name, value), re.sub(r"^-(?=\d+$)|^[se]@", "", value))
    text = _next_to(_with_file(text, typed), typed)
    if text.startswith("pass PATH") and value:
        return Instead(text.replace("PATH", shlex.quote(value)), words=[value], takes_value=not is_joined)
    if text.startswith("leave it out"):
        return Instead(text, words=[], takes_value=takes)
    if text.startswith("kafkalog "):
        line = shlex.split(_AFTER_A_LINE.split(text)[0].replace("\\", ""))
        words = [word for word in line[2:] if word != "PATH"]
        if words[:1] == ["-o"] and _has_output(name, typed):
            words = ["--format", words[1].rpartition(".")[2]]
        is_whole = not any(_PLACEHOLDER.search(word) for word in words)
        return Instead(text, words=words if is_whole else None, takes_value=takes, command=line[1])
    text = text if takes else re.sub(r"^-o [\w-]+\.(\w+)(?=,|$)", lambda file: _output(file, name, own, typed), text)
    return Instead(text, words=_option_words(text, own), takes_value=takes)


def _output(file: re.Match[str], name: str, own: Collection[str], typed: Sequence[str]) -> str:
    """The format of a file, if the output was typed or stdout is one; or else the option for the file."""
    if "--format" not in own:
        return file[0]
    if _has_output(name, typed):
        return f"--format {file[1]}"
    return f"--format {file[1]} -o -" if file[1] in STREAM_FORMATS and is_redirected(sys.stdout) else file[0]


def _has_output(name: str, typed: Sequence[str]) -> bool:
    return not {"-o", "--output"}.difference({name}).isdisjoint(typed)


_AFTER_A_LINE: Final = re.compile(r"(?:, |; | \()(?=(?:[^']*'[^']*')*[^']*$)")
"""What follows a command line in a text, unless it is within quotes."""
_PLACEHOLDER: Final = re.compile(r"\b(?:N|TIME|VALUE|MS|URL|FILE|DIR|NAME|TOPIC|COLUMN|HOST|ID|TABLE|select \.\.\.)\b")
_VALUED: Final = """
--bootstrap-server --broker-list --brokers --zookeeper --host --endpoints
-K -D -X -b -o --offset -F -f -f% --format --formatter --property --delimiter --template --fmt --by --tz --timezone
--time-zone --unit --units --mode --color --missing --copy --level --print --consumer-property --formatter-property
--command-config --consumer-config --sort --sort-by --order-by --order --sep --separator --delim -d --quote --quotechar
--include --topic --topics --version --fields --select --usecols --cut --col
"""
"""Options of other tools whose next word is a value, even where no value is asked for here."""


def _next_to(text: str, typed: Sequence[str]) -> str:
    """A text that goes with the other options that were typed: one codec, one number of records."""
    if not _COMPRESSION.isdisjoint(typed):
        text = text.replace("--compression zstd --compression-level", "--compression-level")
    if "order by timestamp desc" in text:
        given = dict(itertools.pairwise(typed))
        text = text.replace(" N", f" {given.get('-n') or given.get('--tail') or 10}")
    if "from TOPIC" in text and not arguments(typed)[1]:
        text = text.replace("from TOPIC", "from records")
    return re.sub(r"^-n (\d+)$", r"--tail \1", text) if "--tail" in typed else text


_COMPRESSION: Final = frozenset(("--compression", "--codec", "--compress", "--compression-type", "-z"))


def _is_value(word: str, name: str, text: str, typed: Sequence[str]) -> bool:
    """Whether the word after an option of another tool is its value, rather than a path, a topic or an option."""
    if not word or (word.startswith("-") and not re.match(r"-\d", word)):
        return False
    has_place = not text.startswith("leave it out") and _PLACEHOLDER.search(text) is not None
    wants = has_place or name in _VALUED.split()
    paths = [one for one in typed if is_path(one)]
    if is_path(word):
        return wants and len(paths) > 1
    if is_topic(word, paths):
        return wants
    is_format = re.match("--(?:value|key)-format ", text) and any(one in word.lower() for one in FORMATS_OF_VALUES)
    return wants or bool(is_format) or re.search(r"[=:]|^\d+$", word) is not None


def _option_words(text: str, own: Mapping[str, bool]) -> list[str] | None:
    """The options that a text begins with, as words of a command line; None if a value is left open."""
    try:
        left = [(word, word.rstrip(",;")) for word in shlex.split(text)]
    except ValueError:
        return None
    words: list[str] = []
    while left and left[0][1] in own:
        whole, option = left.pop(0)
        words.append(option)
        if own[option]:
            if not left or whole != option:
                return None
            whole, value = left.pop(0)
            words.append(value)
            if _PLACEHOLDER.search(value):
                return None
        if whole != words[-1]:
            break
    return words or None


def _of_header(value: str) -> str:
    """The condition for a header that was typed as ``NAME=VALUE`` or ``NAME``; empty for other values."""
    if found := re.fullmatch(r"([\w.-]+) *[=:]=? *([^']+)", value):
        return f"headers.{found[1]} == {found[2]}"
    return f"headers has {value}" if re.fullmatch(r"[\w-]+", value) else ""


def _fitting(text: str, value: str) -> str:
    """The one of the alternatives in a text that takes such a value, with the value; the text if none or all do."""
    others = [one for one in re.split(r",? or (?=--)|, (?=--)", text) if one.startswith("--")]
    if "headers.NAME" in text and (condition := _of_header(value)):
        return f"--filter '{condition}'"
    from kafkalog.parsing import meant_time

    moment = meant_time(value)
    if "--end-offset" in text and (found := RANGE.fullmatch(value)):
        return f"--start-offset {found[1]} --end-offset {found[2]}, which leaves out {found[2]} itself"
    if value.isdecimal() and (fits := [one for one in others if re.search(r" N\b", one)]):
        return re.sub(r" N\b.*", f" {value}", fits[0])
    if moment is not None and (fits := [one for one in others if " TIME" in one]):
        return fits[0].partition(",")[0].replace(" TIME", f" {shlex.quote(moment)}")
    return text


_KCAT_COLUMNS: Final = {"t": "topic", "p": "partition", "o": "offset", "k": "key", "s": "value", "T": "timestamp"} | {
    "h": "headers"
}


_NAMING_FIELDS: Final = ("--fields", "--select", "--usecols", "--cut", "--col")


def _columns_in(text: str, name: str, value: str) -> list[str]:
    """The columns that the format of kcat, a property of Kafka's consumer or a list of fields prints."""
    columns = [_KCAT_COLUMNS[one] for one in re.findall(r"%(\w)", value) if one in _KCAT_COLUMNS]
    if found := re.match(r"print\.(\w+)=", value):
        columns = [found[1].removesuffix("s") if found[1] != "headers" else "headers", "value"]
    if name in _NAMING_FIELDS and text.startswith("--columns") and re.fullmatch(r"[\w.,]+", value):
        columns = [one if one.split(".")[0] in ALL_COLUMNS else f"value.{one}" for one in value.split(",") if one]
    return columns


def _with_columns(text: str, name: str, value: str) -> str:
    """A text with the columns, or the format of values, that a value of another tool means."""
    if text.startswith("--columns") and (columns := _columns_in(text, name, value)):
        return f"--columns {','.join(dict.fromkeys(columns))}"
    if found := re.match(r"(?:--(?:value|key)-format) ", text):
        option = "--key-format " if value.startswith("key=") else found[0]
        meant = [ours for word, ours in FORMATS_OF_VALUES.items() if word in value.lower()]
        return f"{option}{meant[0]}" if meant else text
    return text


def _with_file(text: str, typed: Sequence[str]) -> str:
    """A text with a name for the file that it writes: that of the topic, if one was typed."""
    words, topics = arguments(typed)
    paths = [os.path.basename(os.path.normpath(one)) for one in words if is_path(one)]
    stems = topics or [one for one in paths if re.search(r"-\d+$", one)]
    stem = stems[0] if len(stems) == 1 and re.fullmatch(r"[\w.-]+", stems[0]) else "records"
    return re.sub(r"\bFILE\.(?=\w)", f"{stem}.", text) if paths else text


def explained(
    unknown: Sequence[tuple[str, Instead]], fixed: Sequence[str], prog: str, typed: Sequence[str]
) -> tuple[str, Advice]:
    """The beginning of the message about unknown options, and what to type instead.

    `fixed` is the rest of the command line, with what stands for the options.
    """
    ours = prog.split()[1:]
    command = next((one.command for _, one in unknown if one.command), None)
    is_whole = all(one.words is not None for _, one in unknown)
    fixed = _one_tail(_one_list_of_columns(_of_files(fixed, ours)))
    line = [*([command] if command else ours), *fixed] if is_whole else []
    if not ours:
        line = _of_top_level(command, typed) if command else []
    if len(unknown) > 1:
        return _of_several(unknown, line, typed)
    (name, one), *_ = unknown
    text, lines = filled(one.said, typed), one.lines
    first = re.match(r"use (kafkalog (?:'[^']*'|[^,;(|'])*?)(?=,|;| \(|$)", text) if command else None
    if first is not None and line:
        return f"no option {name}", Advice(f"use {LINE}{text[first.end() :]}", line, first[1])
    return f"no option {name}", Advice(f"{text}{_joint(text, line) if line else ''}", line, "", lines=lines)


def _of_several(
    unknown: Sequence[tuple[str, Instead]], line: Sequence[str], typed: Sequence[str]
) -> tuple[str, Advice]:
    names = [*dict.fromkeys(name for name, _ in unknown)]
    told = [(name, filled(one.said, typed)) for name, one in unknown]
    left_out = [f"{name}{text.removeprefix(_LEAVE)}" for name, text in told if text.startswith(_LEAVE)]
    by_text: dict[str, list[str]] = {}
    for name, text in told:
        if not text.startswith(_LEAVE):
            by_text.setdefault(text, []).append(name)
    texts = [f"{', '.join(dict.fromkeys(several))}: {text}" for text, several in by_text.items()]
    if left_out:
        texts.append(f"leave out {_with_reasons(left_out)}")
    text = "; ".join(dict.fromkeys(texts))
    lines = [*dict.fromkeys(line for _, one in unknown for line in one.lines)]
    return f"no option{'s' if names[1:] else ''} {', '.join(names)}", Advice(
        f"{text}{_joint(text, line) if line else ''}", line, "", lines=lines
    )


def _with_reasons(left_out: Sequence[str]) -> str:
    """Options, each with its reason after a colon or without one, as a list in which a reason stands once."""
    reasons: dict[str, list[str]] = {}
    for one in dict.fromkeys(left_out):
        option, _, reason = one.partition(": ")
        reasons.setdefault(reason, []).append(option)
    return ", ".join(", ".join(several) + (f" ({reason})" if reason else "") for reason, several in reasons.items())


_LEAVE: Final = "leave it out"


def _joint(text: str, line: Sequence[str]) -> str:
    """What follows a text: the command line, with the pipe that the text names after it."""
    pipe = re.search(r"jq (?:-c )?(?:'[^']*'|\.[\w.]+)", text) if "--json" in line else None
    return (f" {LINE}" if text.endswith("?") else f": {LINE}") + (f" | {pipe[0]}" if pipe else "")


def _of_top_level(command: str, argv: Sequence[str]) -> list[str]:
    """The command line for options of kcat, which has no commands."""
    words = [command]
    for before, word in itertools.pairwise(["", *argv]):
        asked = re.fullmatch(r"([\w.-]+):(\d+):(-?\d+)", word)
        if before == "-t" and asked and command == "lookup":  # TOPIC:PARTITION:TIME of -Q
            time = {"-1": "latest", "-2": "earliest"}.get(asked[3], asked[3])
            words += [asked[1], "-p", asked[2], "--timestamp", time]
        elif word not in ("-Q", "-C", "-L", "-G"):
            words.append(word)
    return words


def _one_tail(argv: Sequence[str]) -> list[str]:
    """A command line with one number for ``--tail``: the last that was typed, also as a number of records."""
    at = [number for number, word in enumerate(argv) if word == "--tail"]
    counts = [number for number, word in enumerate(argv) if word == "-n"]
    if not at or not at[1:] + counts:
        return [*argv]
    last = max(at + counts)
    dropped = {number + more for number in at + counts if number != last for more in (0, 1)}
    return ["--tail" if number == last else word for number, word in enumerate(argv) if number not in dropped]


def _one_list_of_columns(argv: Sequence[str]) -> list[str]:
    """A command line whose lists of columns, each of an option of its own, are one; ``--json`` is there once."""
    argv = [word for number, word in enumerate(argv) if word != "--json" or word not in argv[:number]]
    at = [number for number, word in enumerate(argv) if word == "--columns"]
    if len(at) < 2:
        return [*argv]
    columns = dict.fromkeys(one for number in at for one in argv[number + 1].split(","))
    ordered = sorted(columns, key=lambda one: one == "value")
    left = [word for number, word in enumerate(argv) if number not in at and number - 1 not in at]
    return [*left, "--columns", ",".join(ordered)]


def _of_files(argv: Sequence[str], command: Sequence[str]) -> list[str]:
    """A command line with the segments of each directory, for the command that reads files."""
    return [os.path.join(word, "*.log") if command == ["dump"] and os.path.isdir(word) else word for word in argv]


_SINCE: Final = ("-S", "--since", "--last", "--ago", "--newer-than", "--within")
_PLACES: Final = ("from-end", "from-time", "to-time", "start", "stop")
_FORMATS: Final = ("--to", "--format", "--output-format", "--to-format", "--target-format")
_TABLES: Final = ("--csv", "--parquet", "--jsonl", "--ndjson", "--arrow")
_BY_VALUE: Final = {
    **{(name, "file"): {"--outfile"} for name in ("--to", "-o", "--output", "--out", *_TABLES)},
    **{(name, "time"): {"--since-time"} for name in _SINCE},
    **{
        (name, kind): {f"-o-{kind}"}
        for name in ("-o", "--offset")
        for kind in ("from-end", "from-time", "to-time", "start", "stop")
    },
    **{(name, kind): {f"--to-{kind}"} for name in _FORMATS for kind in ("table", "json")},
    **{(name, "range"): {"--offsets"} for name in ("-o", "--offset")},
    ("--sort", "size"): {"--sort-size"},
    **{(f"--{kind}", "file"): {f"--{kind}-file"} for kind in ("avro", "protobuf")},
    **{("-r", kind): {"-r-raw"} for kind in ("time", "number")},
    ("--include", "all"): {"--all"},
    **{(name, kind): {f"-o-{kind}"} for name in ("-o", "--output") for kind in ("json", "table", "wide")},
    **{(name, "condition"): {"--exclude-condition"} for name in ("--exclude", "--not", "--ignore")},
    ("-X", "isolation"): {"-X-isolation"},
    ("--last", "number"): {"--last-n"},
    **{(f"--{side}", kind): {f"--{side}-as"} for side in ("key", "value") for kind in ("json", "format")},
}
"""By option and the kind of its value: the word of another row, where the value says that this is meant."""


def _meant_by_value(name: str, kind: str, command: str) -> set[str]:
    """The words of other rows that a value says are meant; none for `load`, whose file is one to read."""
    return set() if command == "load" else _BY_VALUE.get((name, kind), set())


def _with_value(text: str, value: str) -> str:
    """A text with the value that was typed; a value that is a condition stands for a whole one."""
    if not value or value.startswith("-"):
        return text
    if text.startswith("-o VALUE") and value.lower() in FORMAT_NAMES:
        text = text.replace("VALUE", "out.VALUE", 1)
    if "FILE.VALUE" in text:
        value = {"tsv": "csv", "xlsx": "csv", "excel": "csv"}.get(value, value)  # what spreadsheets read
    if CONDITION.search(value):
        text = re.sub(r"'[^']*\bVALUE'", lambda _: shown([value]), text)
        return text.replace("'COLUMN OP VALUE'", shown([value]))
    return put(text.replace("'COLUMN OP VALUE'", "'key == VALUE'"), "VALUE", value)
