"""Command lines in words of other tools: what they stand for here, or what to type instead.

The words for commands are in `kafkalog.words`, as they are also those for functions. Here are those for options.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Collection, Sequence
from typing import Final

from kafkalog.text import DURATION, near
from kafkalog.words import Lead, american, command_lead, commands, plain, rows

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
    lead = command_lead(name)
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
    lead = command_lead(name)
    if _QUERY.match(argv[0]):
        return filled(f"use kafkalog sql {shlex.quote(argv[0])} PATH", argv[1:])
    if "/" in argv[0] or (lead is None and _is_path(argv[0])):
        if later := [word for word in argv[1:] if plain(word) in known or command_lead(plain(word))]:
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


def _compound_lead(name: str, known: Collection[str]) -> str | Lead | None:
    """The command, or the lead, that a part of a compound stands for: its verb, if that is known."""
    parts = name.split("-")
    if len(parts) > 1:
        for part in parts:
            if part in known or f"{part}s" in known:
                return part if part in known else f"{part}s"
            if lead := command_lead(part):
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
        for row in rows(_OPTIONS):
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
