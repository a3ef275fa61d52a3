"""Committed offsets from files, and the partition that a group belongs to."""

import random

import pytest
from effort import thinned
from golden_sets import unpacked
from refusals import fails_with

import kafkalog
from kafkalog.booting.coordinators import CoordinatorState, by_partition, coordinator_partition, write_commits
from kafkalog.booting.sources import Sources
from kafkalog.cli.app import main
from kafkalog.errors import DEFAULT_LIMITS, ReadError
from kafkalog.system_topics.commits_file import Commit, commits_of, encode_commits, is_csv, read_commits_file


def test_the_hash_is_javas():
    # String.hashCode() of these is 0, -2^31, and that of surrogate pairs
    assert coordinator_partition("", 50) == 0
    assert coordinator_partition("polygenelubricants", 50) == 0
    assert coordinator_partition("\N{GRINNING FACE}", 50) == abs((31 * 0xD83D + 0xDE00) % 2**32) % 50


@pytest.mark.parametrize("name", ["k44", "k28"])
def test_a_count_is_found_by_which_every_name_lies_where_it_was(name):
    sources = Sources.find([unpacked(name)])
    state = CoordinatorState.read([some[0] for some in sources.copies.values()], DEFAULT_LIMITS)
    for topic, names in state.names.items():
        n = len([key for key in sources.copies if key.topic == topic])
        assert state.n_partitions(topic, n) == n
        assert any(names.values())


def test_few_directories_of_fifty_are_known_by_their_groups():
    state = CoordinatorState()
    names = [f"group-{number}" for number in range(200)]
    for n in (50, 12):
        where = {at: [name for name in names if coordinator_partition(name, n) == at] for at in range(8)}
        state.names["__consumer_offsets"] = where
        assert state.n_partitions("__consumer_offsets", 8) == n


def test_three_names_that_fit_either_number_tell_fifty():
    both = [name for name in map(str, range(2000)) if coordinator_partition(name, 50) == coordinator_partition(name, 8)]
    state = CoordinatorState()
    for n_names, n in ((2, 8), (3, 50)):
        state.names["__consumer_offsets"] = {at: [] for at in range(8)}
        for name in both[:n_names]:
            state.names["__consumer_offsets"][coordinator_partition(name, 50)].append(name)
        assert state.n_partitions("__consumer_offsets", 8) == n


def test_files_of_both_kinds_are_read(tmp_path):
    lines = tmp_path / "commits.jsonl"
    lines.write_text(
        '{"group": "a", "topic": "orders", "partition": 0, "offset": 5, "leader_epoch": 2, "metadata": "x\\u2028y"}\n'
        '\n{"group": "a", "topic": "orders", "partition": "1", "offset": "6", "commit_timestamp": 1000, "lag": 3}\n'
    )
    first = Commit("a", "orders", 0, 5, 2, "x\u2028y")
    assert read_commits_file(lines) == [first, Commit("a", "orders", 1, 6, commit_timestamp=1000)]
    table = tmp_path / "commits.csv"
    table.write_text(
        "group,topic,partition,offset,commit_timestamp,metadata\n"
        '"b, c",orders,0,7,2026-11-21T08:00:00Z,\n"b, c",orders,1,8,,"two\nlines"\n'
    )
    assert read_commits_file(table) == [
        Commit("b, c", "orders", 0, 7, commit_timestamp=1_795_248_000_000),
        Commit("b, c", "orders", 1, 8, metadata="two\nlines"),
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "not a JSON object"),
        ("[1]", "not a JSON object"),
        ('{"group": "a", "topic": "t", "partition": 0}', "'offset' is missing"),
        ('{"group": "a", "topic": "t", "partition": 0, "offset": -1}', "out of range"),
        ('{"group": "a", "topic": "t", "partition": 0, "offset": 1.5}', "must be a whole number"),
        ('{"group": "a", "topic": "t", "partition": true, "offset": 1}', "must be a whole number"),
        ('{"group": 7, "topic": "t", "partition": 0, "offset": 1}', "must be a name"),
        ('{"group": "a", "topic": "", "partition": 0, "offset": 1}', "must be a name"),
        ('{"group": "a", "topic": "t/u", "partition": 0, "offset": 1}', "not a topic name"),
        ('{"group": "a", "topic": "t", "partition": 0, "offset": 1, "metadata": 5}', "metadata"),
        ('{"group": "a", "topic": "t", "partition": 0, "offset": 1, "commit_timestamp": "then"}', "commit_timestamp"),
    ],
)
def test_a_line_that_is_no_commit_is_an_error(tmp_path, line, words):
    path = tmp_path / "commits.jsonl"
    path.write_text('{"group": "g", "topic": "t", "partition": 0, "offset": 1}\n' + line + "\n")
    with fails_with("column_value") as refused:
        read_commits_file(path)
    assert words in refused.value.detail
    assert refused.value.path == str(path)


def test_two_offsets_of_one_group_and_partition_are_an_error(tmp_path):
    path = tmp_path / "commits.jsonl"
    path.write_text('{"group": "g", "topic": "t", "partition": 0, "offset": 1}\n' * 2)
    with fails_with("column_twice"):
        read_commits_file(path)
    with pytest.raises(ReadError):
        read_commits_file(tmp_path / "absent.jsonl")


def test_commits_that_are_written_are_read_again(tmp_path):
    rng = random.Random(5)
    commits = [
        Commit(
            f"gr\N{LATIN SMALL LETTER U WITH DIAERESIS}ppe-{group}",
            f"topic-{topic}",
            part,
            rng.getrandbits(62),
            rng.randrange(-1, 9),
            "m" * part,
            7,
        )
        for group in range(40)
        for topic in range(3)
        for part in range(2)
    ]
    (tmp_path / "data").mkdir()
    write_commits(tmp_path / "data", by_partition(commits, 50), "AAAAAAAAAAAAAAAAAAAAAQ", 1000)
    found = [
        Commit(one.name, row.topic, row.partition, row.offset, row.leader_epoch, row.metadata, row.commit_timestamp)
        for one in kafkalog.groups(tmp_path / "data")
        for row in one.offsets
    ]
    assert sorted(found, key=str) == sorted(commits, key=str)
    for directory in (tmp_path / "data").iterdir():
        names = {one.name for one in kafkalog.groups(directory)}
        assert {coordinator_partition(name, 50) for name in names} == {int(directory.name.rpartition("-")[2])}


@pytest.mark.parametrize("name", thinned(["offsets.jsonl", "offsets.csv"], 2))
def test_the_command_writes_a_file_that_boot_takes(tmp_path, name):
    source, path = unpacked("k44"), tmp_path / name
    assert main(["groups", str(source), "-o", str(path), "-q"]) == 0
    wanted = commits_of(kafkalog.groups(source))
    assert wanted
    assert read_commits_file(path) == wanted
    assert main(["groups", str(source), "-o", str(path), "-q"]) == 6
    assert main(["groups", str(source), "-o", str(source / name), "-q"]) == 6
    report = kafkalog.boot(source, tmp_path / "out", groups=path, topics="p-*")
    assert report.n_commits == len(wanted)
    found = commits_of(kafkalog.groups(tmp_path / "out" / "data"))
    assert sorted(found, key=str) == sorted(wanted, key=str)


def test_any_text_survives_a_file(tmp_path):
    commits = [
        Commit(f'g"{text}', "orders", number, number, 3, text)
        for number, text in enumerate(["a,b", "a\r\nb", 'say "no"', "\u2028", "\N{GRINNING FACE}", " x "])
    ]
    for name in ("c.csv", "c.jsonl"):
        (tmp_path / name).write_bytes(encode_commits(commits, as_csv=name.endswith("csv")))
        assert read_commits_file(tmp_path / name) == commits


@pytest.mark.parametrize(
    "name", ["o.parquet", "o.pq", "o.feather", "o.avro", "o.csv.gz", "o.jsonl.zst", "o.tsv", "o.xlsx"]
)
def test_files_of_committed_offsets_have_the_name_of_no_other_format(tmp_path, name):
    with pytest.raises(ValueError, match=r"end o.* in \.jsonl or \.csv"):
        is_csv(tmp_path / name)


def test_files_of_committed_offsets_are_csv_by_their_name_only():
    assert [is_csv(name) for name in ("o.csv", "O.CSV", "o.jsonl", "o.json", "offsets", "o.backup")] == [True] * 2 + [
        False
    ] * 4
