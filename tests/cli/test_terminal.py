"""No name and no value from a file reaches a terminal unescaped, whichever command shows it."""

import io
import re
import shutil
import sys

import golden_sets
import numpy as np
import pyarrow as pa
import pytest
from builder import fix_crc
from effort import thinned

import kafkalog
from kafkalog.cli import main
from kafkalog.cli.commands import SUMMARIES
from kafkalog.cli.terminal import alarming

HOSTILE = "\x1b[2J\u009b31m\u202e\x07\x7f\u2028"
HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
SYSTEM = (
    "__cluster_metadata-0",
    "__consumer_offsets-*",
    "__transaction_state-*",
    "__share_group_state-*",
    "_schemas-*",
)


def hostile(n_bytes):
    """Text of that many bytes in UTF-8, with as many control characters as fit."""
    text = (HOSTILE * n_bytes).encode()[:n_bytes].decode(errors="ignore")
    return (text + "\x1b" * (n_bytes - len(text.encode()))).encode()


def made_hostile(data):
    """The batches of a segment, with each longer word in their records replaced."""
    result = []
    while data:
        batch = data[: int.from_bytes(data[8:12], "big") + 12]
        data = data[len(batch) :]
        if batch[16] == 2 and not batch[22] & 7 and len(batch) > 61:
            body = re.sub(rb"[a-zA-Z][a-zA-Z0-9_.-]{4,}", lambda found: hostile(len(found[0])), batch[61:])
            batch = fix_crc(batch[:61] + body)
        result.append(batch)
    return b"".join(result)


def n_log_bytes(place):
    """The bytes of a partition's segments."""
    return sum(path.stat().st_size for path in place.glob("*.log"))


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory):
    """A log dir in which every name and value that a producer, a client or a stranger chooses is hostile."""
    root = tmp_path_factory.mktemp("hostile") / "data"
    source = golden_sets.unpacked("k44")
    root.mkdir()
    for pattern in SYSTEM:
        # of each topic the partition with the most records
        for place in sorted(source.glob(pattern), key=n_log_bytes)[-1:]:
            shutil.copytree(place, root / place.name)
            for path in (root / place.name).glob("*.log"):
                path.write_bytes(made_hostile(path.read_bytes()))
            for path in (root / place.name).glob("*.checkpoint"):
                path.unlink()  # the log has all of it
    text = HOSTILE.encode()
    column = pa.array(
        [text, text + b"\xff", b'{"' + text[:1] + b'": "x"}', '{"\u009b\u202e": "\u009b\u202e"}'.encode()]
    )
    headers = [[("h" + HOSTILE, text)]] * 4
    records = pa.table({"key": column, "value": column, "headers": pa.array(headers, HEADERS)})
    kafkalog.write_table(records, root, topic="orders", stage_in=root.parent)
    texts = pa.table({"key": [f"k{HOSTILE}"], "value": [f"v{HOSTILE}"]})
    kafkalog.write_table(texts, root, topic="texts", stage_in=root.parent)
    shutil.copytree(root / "orders-0", root / f"or{HOSTILE}-0")
    shutil.copytree(root / "orders-0", root / f"damaged{HOSTILE}-0")
    path = root / f"damaged{HOSTILE}-0" / f"{0:020d}.log"
    data = np.frombuffer(path.read_bytes(), np.uint8).copy()
    data[30] ^= 1
    path.write_bytes(data.tobytes())
    for name in (f"{HOSTILE}.log", f"{0:020d}.log.{HOSTILE}", f"{5:020d}.{HOSTILE}"):
        (root / "orders-0" / name).write_bytes(b"x")
    for name in (f"or{HOSTILE}-0.{'0' * 32}-delete", HOSTILE):
        (root / name).mkdir()
    lines = f"0\n2\norders 0 3\n{HOSTILE} 0 7\n"
    for name in ("recovery-point", "replication", "log-start"):
        (root / f"{name}-offset-checkpoint").write_text(lines)
    (root / "meta.properties").write_text(f"version=1\ncluster.id=c{HOSTILE}\nnode.id=1\n")
    (root.parent / "server.properties").write_text(f"log.dirs={root}\nnode.id=1\ncompression.type={HOSTILE}\n")
    return root


def commands(root, out):
    """The arguments of each command, in some of its forms."""
    orders, hostile_topic = root / "orders-0", root / f"or{HOSTILE}-0"
    log, bad = orders / f"{0:020d}.log", root / f"damaged{HOSTILE}-0"
    groups, states = "__consumer_offsets", "__transaction_state"
    yield from (["ls", root], ["ls", root, "--segments"], ["ls", bad])
    yield from (["report", root], ["report", root, "--config", root.parent / "server.properties"])
    yield from (["space", root], ["space", root, "--records"], ["cat", orders], ["cat", hostile_topic])
    yield ["cat", root, "--on-corruption", "skip"]
    for how in ("utf8", "json"):
        yield ["cat", orders, "--value-format", how, "--on-decode-error", "null"]
    yield from (["cat", bad], ["cat", orders, "--explain"], ["cat", hostile_topic / "nothing"])
    for form in ([], ["--json"], ["--csv"]):
        yield ["sql", "select * from orders", orders, *form]
        yield ["sql", f'select key, value, [value], value as "a{HOSTILE}" from texts', root / "texts-0", *form]
        yield [
            "sql",
            f'select value as "a{HOSTILE}" from orders',
            orders,
            "--value-format",
            "utf8",
            "--on-decode-error",
            "null",
            *form,
        ]
        yield ["sql", f'select * from "{HOSTILE}"', root, *form]
    yield from (["batches", root, "--on-corruption", "skip"], ["batches", root, "--summary"], ["batches", bad])
    yield from (["lookup", orders, "--offset", 1], ["lookup", bad, "--offset", 1])
    for topic, decoder in (
        (groups, "offsets"),
        (states, "transaction-log"),
        ("__cluster_metadata", "cluster-metadata"),
    ):
        files = sorted(root.glob(f"{topic}-*/*.log"))
        yield ["dump", f"--{decoder}-decoder", *files]
        yield ["dump", f"--{decoder}-decoder", *files, "--json"]
    yield from (["dump", "--print-data-log", log], ["dump", "--print-data-log", log, "--json"])
    yield ["dump", "--print-data-log", bad / f"{0:020d}.log"]
    for form in ("csv", "jsonl"):
        yield ["export", orders, "-o", "-", "--format", form, "--encoding", "utf8"]
        yield ["export", orders, "-o", "-", "--format", form, "--value-format", "utf8", "--on-decode-error", "null"]
    yield from (["producers", root], ["epochs", root], ["epochs", bad], ["schemas", root], ["transactions", root])
    yield from (["transactions", root, "--history"], ["groups", root], ["groups", root, "--members"])
    yield from (["groups", root, "--history"], ["groups", root, "--offsets"], ["groups", root, "-g", HOSTILE])
    yield from (
        ["metadata", root],
        ["metadata", root, "--history"],
        ["metadata", root, "--show", "configs,topics,brokers,acls,users"],
    )
    yield from (["index-stats", root], ["index-stats", root, "--segments"], ["verify", root, "-v"], ["verify", root])
    yield from (["tiered", "verify", root], ["tiered", "verify", root, "--log-dir", root])
    yield from (
        ["tiered", "restore", root, "-o", out / "restored"],
        ["preflight", root],
        ["preflight", root, "--unclean"],
    )
    yield ["preflight", root, "--config", root.parent / "server.properties"]
    yield from (["recover", root, "-o", out / "recovered"], ["recover", root, "--all", "--dry-run"])
    yield from (
        ["truncate", root, "--to-offset", 1, "-o", out / "cut"],
        ["trim", root, "--before-offset", 1, "-o", out / "trimmed"],
    )
    yield from (["trim", root, "--retention", "--dry-run"], ["compact", root, "-o", out / "compacted"])
    yield from (["salvage", root, "-o", out / "salvaged"], ["merge", root, root, "-o", out / "merged"])
    yield from (["diff", orders, bad], ["boot", root, "-o", out / "booted"], ["reindex", root, "--dry-run"])
    yield from (
        ["convert", root, "-o", out / "converted", "--on-corruption", "skip"],
        ["convert", bad, "-o", out / "x"],
    )
    (out / "rows.jsonl").write_text('{"value": "\\u009b\\u202e", "key": 1, "\\u009b\\u202e": 3}\n')
    yield ["load", out / "rows.jsonl", "-o", out / "loaded", "--topic", f"t{HOSTILE}"]
    yield ["load", out / "rows.jsonl", "-o", out / "loaded", "--topic", "t"]
    yield ["sample", out / f"sample{HOSTILE}"]
    yield ["undelete", log, "--log-dir", root, "--all", "-o", out / "undeleted"]


class Screen(io.TextIOWrapper):
    """stdout or stderr, in memory."""

    def __init__(self, *, is_terminal):
        super().__init__(io.BytesIO(), encoding="utf-8", errors="surrogateescape", write_through=True)
        self._is_terminal = is_terminal

    def isatty(self):
        return self._is_terminal

    def fileno(self):
        raise OSError

    def shown(self):
        return self.buffer.getvalue().decode(errors="surrogateescape")


OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def obeyed(text, *, is_terminal):
    """The first line of a text with what a terminal might obey; at one, with anything that is not printable."""
    for line in re.split(r"[\n\t]", text):
        if (is_terminal and not line.isprintable()) or OBEYED.search(line):
            return ascii(line)[:300]
    return None


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.slow
def test_no_command_shows_what_a_terminal_obeys(is_terminal, log_dir, tmp_path, monkeypatch):
    tested, faults = set(), []
    monkeypatch.setattr("kafkalog.cli.terminal._PROGRESS_AFTER", 1e9)  # a slow machine shows no bar either
    for number, argv in enumerate(commands(log_dir, tmp_path)):
        argv = [str(one) for one in argv]
        tested.add(argv[0])
        if not is_terminal and ("--csv" in argv or argv[0] == "export"):
            continue  # CSV in a file has what the records have
        out, err = Screen(is_terminal=is_terminal), Screen(is_terminal=is_terminal)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = main(argv)
        # our own colour is the one thing that a terminal may obey
        shown = [re.sub("\x1b\\[(?:31|0)m", "", one.shown()) for one in (out, err)]
        assert any(shown) or code == 0, argv
        faults += [f"{number} {argv!a}: {found}" for text in shown if (found := obeyed(text, is_terminal=is_terminal))]
        if code == 70:
            faults.append(f"{argv!a}: {ascii(shown)[-500:]}")
    assert not faults, "\n".join(faults)
    assert tested == set(SUMMARIES)


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("options", [[], ["-s"]])
def test_ls_fits_a_terminal_and_leaves_nothing_out_of_a_pipe(width, options, tmp_path, monkeypatch):
    stamps = [1_750_000_000_000 + number for number in range(5)]
    table = {"key": [b"k"] * 5, "value": [b"v"] * 5, "timestamp": stamps}
    kafkalog.write_table(table, tmp_path / "log", topic="orders")
    monkeypatch.setenv("COLUMNS", str(width))
    shown = {}
    for is_terminal in (True, False):
        screen = Screen(is_terminal=is_terminal)
        monkeypatch.setattr(sys, "stdout", screen)
        assert main(["ls", str(tmp_path / "log"), *options]) == 0
        shown[is_terminal] = screen.shown().splitlines()
    assert max(map(len, shown[True])) <= width or options
    assert {"PARTITION", "BYTES", "END", "RECORDS", "LAST"} <= set(shown[True][0].split())
    assert shown[False][0].split()[-4:] == ["FIRST", "LAST", "FORMATS", "CODECS"]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """A log dir as people have it, with one batch that is damaged."""
    root = tmp_path_factory.mktemp("damaged") / "data"
    kafkalog.sample(root)
    (log,) = (root / "orders-1").glob("*.log")
    data = bytearray(log.read_bytes())
    data[3000] ^= 0xFF
    log.write_bytes(data)
    return root


TO_COPY = re.compile(r"^ *kafkalog |\.sh --")


def screens(argv, monkeypatch, *, is_terminal=True):
    """What a command writes to stdout and stderr."""
    out, err = Screen(is_terminal=is_terminal), Screen(is_terminal=is_terminal)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        main([str(one) for one in argv])
    return out.shown(), err.shown()


@pytest.mark.parametrize("width", thinned([80, 100, 160], 3))
@pytest.mark.parametrize("command", ["ls", "ls -s", "verify", "report", "preflight", "space", "groups", "transactions"])
def test_lines_fit_a_terminal_and_only_a_terminal_has_colour(command, width, damaged, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("kafkalog.cli.terminal._PROGRESS_AFTER", 1e9)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    argv = [*command.split(), damaged]
    shown = "".join(screens(argv, monkeypatch))
    piped = "".join(screens(argv, monkeypatch, is_terminal=False))
    monkeypatch.setenv("NO_COLOR", "1")
    plain = "".join(screens(argv, monkeypatch))
    assert "\x1b" not in plain + piped
    assert ("\x1b[31m" in shown) == (command in ("verify", "report", "preflight"))
    # words stay whole, and the path of the log dir may be of any length
    lines = [line for line in plain.splitlines() if len(line.split()) > 1 and not TO_COPY.search(line)]
    assert not [line for line in lines if len(line) > width]
    # a word that a line ends in the middle of would be in no other output
    names = re.compile(r"\b(?:orders|payments|customers)-\d\b")
    assert {*names.findall(plain)} <= {*names.findall(piped)}


TABLES = (
    *("batches", "batches --summary", "producers", "epochs", "index-stats", "index-stats --segments --what-if 1024"),
    *("metadata", "metadata --show topics,partitions,configs,brokers", "groups", "groups --members", "transactions"),
)


@pytest.mark.parametrize("width", thinned([80, 100, 160], 3))
@pytest.mark.parametrize("command", TABLES)
def test_a_row_of_a_table_is_a_line(command, width, damaged, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    name, *options = command.split()
    root = golden_sets.unpacked("k44") if name in ("metadata", "transactions") else damaged
    shown, piped = (
        [
            line
            for line in screens([name, root, *options], monkeypatch, is_terminal=is_terminal)[0].splitlines()
            if not TO_COPY.search(line)
        ]
        for is_terminal in (True, False)
    )
    assert max(map(len, shown)) <= width
    # sentences may be wrapped
    tables = [[line for line in lines if "  " in line.strip()] for lines in (shown, piped)]
    assert len(tables[0]) == len(tables[1])


def test_a_name_of_any_length_leaves_a_table_in_line(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    kafkalog.write_table({"value": [b"a"]}, tmp_path, topic="x" * 200)
    for command in ("batches", "ls", "index-stats"):
        lines = screens([command, tmp_path], monkeypatch)[0].splitlines()
        assert max(map(len, lines)) <= 80, command


def test_a_terminal_folds_what_is_healthy_and_v_lists_it(damaged, monkeypatch):
    for command, healthy in (("verify", "customers-0"), ("preflight", "customers-0")):
        out, _ = screens([command, damaged], monkeypatch)
        assert healthy not in out
        assert "orders-1" in out
        assert healthy in screens([command, damaged, "-v"], monkeypatch)[0]
        assert healthy in screens([command, damaged], monkeypatch, is_terminal=False)[0]


@pytest.mark.parametrize("command", ["ls", "space"])
def test_sizes_are_for_people_on_a_terminal_and_exact_with_bytes(command, damaged, monkeypatch):
    exact = f"{n_log_bytes(damaged / 'orders-0'):,}"
    assert "KiB" in screens([command, damaged], monkeypatch)[0]
    for argv, is_terminal in (([command, damaged, "--bytes"], True), ([command, damaged], False)):
        out, _ = screens(argv, monkeypatch, is_terminal=is_terminal)
        assert exact in out
        assert "KiB" not in out


def test_sql_prints_a_table_on_a_terminal_and_tabs_elsewhere(damaged, monkeypatch):
    pytest.importorskip("duckdb")
    monkeypatch.setenv("COLUMNS", "80")
    query = "select 'pear' as fruit, 12 as n union all select 'fig', 3 order by n"
    assert screens(["sql", query, damaged], monkeypatch)[0] == "fruit   n\nfig     3\npear   12\n(2 rows)\n"
    assert screens(["sql", query, damaged], monkeypatch, is_terminal=False)[0] == "fruit\tn\nfig\t3\npear\t12\n"
    wide = ", ".join(f"repeat('x', 100) as c{number}" for number in range(9))
    out, _ = screens(["sql", f"select {wide}", damaged], monkeypatch)
    assert max(map(len, out.splitlines())) <= 80
    assert "more columns; --csv or --json show all" in out
    # of records, the value stays as long as some of it fits
    record = "'orders' as topic, 0 as partition, 5 as \"offset\", repeat('9', 24) as timestamp, 0 as timestamp_type"
    for width in (80, 100, 160):
        monkeypatch.setenv("COLUMNS", str(width))
        query = f"select {record}, 'user-1' as key, repeat('x', 70) as value, '[]' as headers"
        out, _ = screens(["sql", query, damaged], monkeypatch)
        assert max(map(len, out.splitlines())) <= width
        assert "value" in out.splitlines()[0].split()


def test_tables_stay_in_line_whatever_names_and_values_are(damaged, monkeypatch):
    pytest.importorskip("duckdb")
    monkeypatch.setenv("COLUMNS", "40")
    query = "select '無花果' as \"a\nb\", 1 as n union all select 'fig', 12 order by n"
    assert screens(["sql", query, damaged], monkeypatch)[0] == "a\\nb     n\n無花果   1\nfig     12\n(2 rows)\n"
    cut = screens(["sql", "select repeat('無', 50) as tree, 1 as n", damaged], monkeypatch)[0].splitlines()[1]
    assert cut == f"{'無' * 14}…  1"


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_report_says_what_is_damaged_however_narrow_the_terminal_is(width, damaged, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    out, _ = screens(["report", damaged], monkeypatch)
    assert "crc_mismatch: the checksum does not match the batch's bytes" in " ".join(out.split())
    assert "\norders-1/" in out  # the losses
    assert f"\n  kafkalog report {damaged} -o report.html\n" in out


def test_a_topic_whose_name_sounds_like_damage_has_no_colour():
    assert [*map(alarming, ("lost-0  0.log  OK", "loses        3  27 KiB", "damaged-log  1  5 B"))] == [
        "lost-0  0.log  OK",
        "loses        3  27 KiB",
        "damaged-log  1  5 B",
    ]
    for line in (
        "loses    /data/t-0  offsets 0..3",
        "does not start t-0  offsets 0..3",
        "damaged: t-0",
        "lost: 3 records",
    ):
        assert alarming(line) == f"\x1b[31m{line}\x1b[0m"


def test_sql_reports_damage_as_other_commands_do(damaged, monkeypatch):
    pytest.importorskip("duckdb")
    _, err = screens(["sql", "select max(value.total) from orders", damaged], monkeypatch, is_terminal=False)
    assert re.search("crc_mismatch: the checksum does not match the batch's bytes; use --on-corruption skip", err)
    assert "Traceback" not in err
