"""A report on log dirs: contents, damage, losses, the next start, lag, and the next deletions."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from kafkalog.errors import DEFAULT_LIMITS, Finding, Findings, Limits
from kafkalog.html import visible
from kafkalog.log.log_dir import LogDir, log_dir_of
from kafkalog.log.open import latest_of, partitions_of
from kafkalog.operations.listing import Clusters
from kafkalog.operations.verifying.values import verify_values
from kafkalog.parsing import TopicPatterns, parse_milliseconds
from kafkalog.protocol.releases import METADATA_VERSION, level_name
from kafkalog.repair.recovering.preflight import preflight
from kafkalog.reporting.contents import UNKNOWN, Contents
from kafkalog.reporting.page import MOST_CHARACTERS, page
from kafkalog.reporting.tables import NUMERIC, Kind, Table, TablesResult, column_title
from kafkalog.state.checkpoints import known_properties, node_id_of
from kafkalog.storage.location import is_url
from kafkalog.storage.output_paths import check_outside
from kafkalog.storage.staging import staged_file
from kafkalog.survey.next_steps import NextStep, steps_after_damage
from kafkalog.system_topics.groups import groups
from kafkalog.system_topics.list_producers import TRANSACTION_MAX_TIMEOUT_MS
from kafkalog.system_topics.transactions import transactions
from kafkalog.text import counted, iso_seconds
from kafkalog.values.schemas import SchemasOption

FORMATS: Final = (".html", ".md", ".json")
VERSION: Final = 1
"""Of the JSON form. Later versions only add fields."""
_MOST_MARKDOWN: Final = 30


@dataclass(slots=True, repr=False)
class Report(TablesResult):
    """A report."""

    paths: list[str]
    created: int
    """The clock of the report, in ms."""
    summary: dict[str, Any]
    """The key figures."""
    tables: dict[str, Table]
    findings: Findings

    @property
    def ok(self) -> bool:
        """Whether nothing is damaged, and a broker starts without a loss."""
        return not self.findings.n_damage and self.summary["verdict"] in ("starts", "recovers", UNKNOWN)

    def as_dict(self) -> dict[str, Any]:
        """The key figures and all rows, for JSON."""
        return {
            "version": VERSION,
            "paths": self.paths,
            "created": self.created,
            "ok": self.ok,
            "summary": self.summary,
            **self.rows_of_tables(),
            "n_more": {name: table.n_more for name, table in self.tables.items() if table.n_more},
        }

    def to_html(self, output: str | os.PathLike[str] | None = None, *, overwrite: bool = False) -> str:
        """Return one page that needs no network, and write it to a `.html` file if one is named."""
        if output is not None:
            self.write(output, overwrite=overwrite)
        return "".join(self._page())

    def _page(self) -> Iterator[str]:
        return page(self._title(), self.created, self.key_figures(), self.tables.values(), is_ok=self.ok)

    def _title(self) -> str:
        return f"kafkalog report: {', '.join(self.paths)}"

    def to_markdown(self) -> str:
        """Return text for a ticket: the first rows of each table that has any."""
        lines = [f"# {_plain(self._title())}", "", iso_seconds(self.created), ""]
        lines += [f"- {title}: {text}" for title, text in self.key_figures()]
        for table in self.tables.values():
            if not table.rows:
                continue
            lines += ["", f"## {table.title}", "", table.about, ""]
            lines += [f"| {' | '.join(map(column_title, table.shown))} |"]
            lines += [f"|{'|'.join('--:' if kind in NUMERIC else '---' for kind in table.shown.values())}|"]
            kinds = table.shown.values()
            for row in table.rows[:_MOST_MARKDOWN]:
                lines.append(f"| {' | '.join(map(_markdown_cell, table.texts(row), kinds))} |")
            n_more = len(table.rows) - _MOST_MARKDOWN + table.n_more
            lines += ["", f"and {n_more:,} more"] if n_more > 0 else []
        return "\n".join(lines) + "\n"

    def write(self, output: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the report to a file whose suffix is the format: `.html`, `.md` or `.json`; it must not lie in a log
        dir.
        """
        check_output(output, self.paths)
        suffix = Path(output).suffix
        parts: Iterable[str] = self._page() if suffix == ".html" else [self.to_markdown()] if suffix == ".md" else []
        with staged_file(output, overwrite=overwrite, parents=True) as file:
            for part in parts or [json.dumps(self.as_dict()), "\n"]:
                file.write(part.encode("utf-8", "backslashreplace"))

    def key_figures(self) -> list[tuple[str, str]]:
        """Return the key figures with titles, as text."""
        one = self.summary
        verdict = f"{one['verdict']} ({'clean' if one['is_clean'] else 'unclean'} start)"
        if one["verdict"] == UNKNOWN:
            verdict = "not known: preflight needs local files"
        least = "at least " if one["n_records_is_minimum"] else ""
        lost = one["losses"]
        identity = [(title, str(one[name])) for name, title in _IDENTITY.items() if one.get(name)]
        return [
            ("State", self.state),
            ("Lost", lost if lost else "nothing"),
            ("A broker", verdict),
            ("Lost by a start", f"{one['n_bytes_lost']:,} bytes"),
            ("Topics", f"{one['n_topics']:,}"),
            ("Partitions", f"{one['n_partitions']:,}"),
            ("Segments", f"{one['n_segments']:,}"),
            ("Bytes of segments", f"{one['n_bytes']:,}"),
            ("Bytes of all files", f"{one['n_file_bytes']:,}"),
            ("Records", f"{least}{one['n_records']:,}"),
            ("Groups", f"{one['n_groups']:,}"),
            ("Lag", f"{one['lag'] or 0:,}"),
            ("Hanging transactions", f"{one['n_hanging']:,}"),
            *identity,
        ]

    @property
    def state(self) -> str:
        """How many findings are damage, and how many files cannot be read."""
        n_damage, n_unreadable = self.summary["n_damage"], self.summary.get("n_unreadable", 0)
        damage = counted(n_damage, "finding") + " of damage" if n_damage else "" if n_unreadable else "no damage"
        return ", ".join(filter(None, [damage, f"{n_unreadable:,} unreadable" if n_unreadable else ""]))

    def __repr__(self) -> str:
        state = "OK" if self.ok else f"{self.state}, {self.summary['verdict']}"
        return f"Report({self.summary['n_partitions']:,} partitions, {state})"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the page in a frame, so that its style stays inside."""
        from html import escape

        return f'<iframe srcdoc="{escape(self.to_html())}" style="width:100%;height:40em;border:0"></iframe>'


def check_output(output: str | os.PathLike[str], paths: Iterable[str | os.PathLike[str]]) -> None:
    """Raise if a report cannot be written to a path: its suffix is not a format, or it would lie in a log dir."""
    if Path(output).suffix not in FORMATS:
        raise ValueError(f"{os.fspath(output)}: the name of a report must end in {', '.join(FORMATS)}")
    check_outside(output, paths)


def report(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    topics: str | Sequence[str] | None = None,
    config: str | os.PathLike[str] | None = None,
    decode: Mapping[str, Any] | None = None,
    schemas: SchemasOption | None = None,
    schema_context: str | None = None,
    now: int | str | datetime | None = None,
    transaction_max_timeout_ms: int = TRANSACTION_MAX_TIMEOUT_MS,
    threads: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[int], object] = lambda n_bytes: None,
) -> Report:
    """Report on the log dirs of a broker: contents, damage, losses, the next start, groups, transactions, outlook.

    The facts come from `verify`, `preflight`, `ls`, `groups` and `transactions`. The function writes nothing.

    Parameters
    ----------
    path : path-like or sequence of path-like
        Log dirs of one or several brokers, or partition directories. With a URL, the start and the outlook are not
        forecast.
    topics : str or sequence of str, optional
        Only these topics: names or globs; a leading ``!`` excludes.
    config : path-like, optional
        The broker's `server.properties`, for retention and the log cleaner. Default: settings of topics in the
        cluster's metadata, and Kafka's defaults.
    decode : mapping, optional
        How keys and values are encoded, as in `scan`. All records are decoded, and those that do not decode are
        counted by topic.
    schemas, schema_context : optional
        See `scan`.
    now : int (ms), str or aware datetime, optional
        The time from which transactions are idle and segments expire; ``end`` is the latest timestamp. Default: the
        system clock.
    transaction_max_timeout_ms : int
        The brokers' `transaction.max.timeout.ms`, after which an open transaction hangs.
    threads : int, optional
        Segments that are verified at the same time; default: the number of processors, up to four.
    limits : Limits
    progress : callable
        Called with the number of further bytes of `.log` files that are verified.

    Returns
    -------
    Report
        `to_html`, `to_markdown` and `as_dict` give the same numbers.

    Raises
    ------
    NotKafkaError, ReadError
        There is no such directory, or no log in it.

    Examples
    --------
    >>> found = kafkalog.report("tests/golden/log_dir", now="2023-11-14T22:30:00Z")
    >>> found.ok, found.summary["n_hanging"]
    (False, 1)
    """
    names = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    log_dir = LogDir(names, limits=limits)
    given = "now" if now is None else now
    now_ms = parse_milliseconds("now", given, end_ms=lambda: latest_of(partitions_of(log_dir)))
    wanted = TopicPatterns(topics)
    contents = Contents(limits, now_ms)
    start: dict[str, Any] = {"verdict": UNKNOWN, "is_clean": None, "n_bytes_lost": 0}
    of_start: list[Finding] = []
    is_local = not any(map(is_url, names))
    log_dirs, advice = list[str](), list[NextStep]()
    if is_local:
        plans = preflight(names, topics=topics, config=config, now=now_ms, threads=threads, limits=limits)
        contents.add_start(plans)
        start = {name: getattr(plans, name) for name in start}
        # of 10,000 partitions the plans take 40 MB
        log_dirs, advice = plans.log_dirs, plans.next
        of_start, plans = plans.findings.rows, None  # type: ignore[assignment]
    known = groups(log_dir)
    contents.add_groups(known, wanted)
    contents.add_partitions(log_dir, topics, threads=threads, progress=progress)
    found = transactions(
        log_dir,
        read_partitions=contents.transactional,
        now=now_ms,
        transaction_max_timeout_ms=transaction_max_timeout_ms,
    )
    first_open = contents.add_transactions(found, wanted)
    if is_local:
        contents.add_outlook(log_dir, topics, config, first_open)
    for more in (of_start, known.findings, found.findings):
        contents.add_findings(more, is_secondary=True)
    if decode:
        options: Any = {"schemas": schemas, "schema_context": schema_context, "topics": topics, "threads": threads}
        contents.add_values(verify_values(log_dir, decode=decode, **options))
    contents.end()
    for step in advice or steps_after_damage(contents.findings.rows, log_dirs):
        contents.add_next(step)
    summary = {**start, **_key_figures(contents), **_identity(log_dir, limits)}
    return Report([str(one) for one in names], now_ms, summary, contents.tables, contents.findings)


_IDENTITY: Final = {"cluster_id": "Cluster", "node_id": "Node", "metadata_version": "Metadata version"}


def _identity(log_dir: LogDir, limits: Limits) -> dict[str, str | None]:
    """The ids of cluster and node in the first `meta.properties`, and the level of the cluster's metadata, if known."""
    roots = [*map(log_dir_of, log_dir.paths)]
    properties = next(filter(None, map(known_properties, roots)), {})
    metadata = Clusters(roots, limits).metadata
    level = metadata.features.get(METADATA_VERSION) if metadata is not None else None
    return {
        "cluster_id": properties.get("cluster.id"),
        "node_id": node_id_of(properties) or None,
        "metadata_version": level_name(level) or str(level) if level is not None else None,
    }


def _key_figures(contents: Contents) -> dict[str, Any]:
    """The sums of the tables and findings."""
    tables, findings = contents.tables, contents.findings
    totals = {name: sum(partition[name] for partition in tables["partitions"].objects()) for name in _TOTALS}
    is_minimum = any(partition["n_records_is_minimum"] for partition in tables["partitions"].objects())
    return {
        "n_topics": len(tables["topics"].rows),
        "n_partitions": len(tables["partitions"].rows),
        **totals,
        "n_records_is_minimum": is_minimum,
        "n_findings": len(findings.rows) + findings.n_more,
        "n_damage": findings.n_damage - findings.n_unreadable,
        "n_unreadable": findings.n_unreadable,
        **contents.lost(),
        "n_groups": len(tables["groups"].rows),
        "lag": sum(group["lag"] or 0 for group in tables["groups"].objects()),
        "n_hanging": sum(transaction["is_hanging"] for transaction in tables["transactions"].objects()),
    }


_TOTALS: Final = ("n_segments", "n_bytes", "n_file_bytes", "n_records")


def _plain(text: str) -> str:
    """Return text for a cell of a Markdown table: markup and characters that cannot be seen are escaped."""
    shown = visible(text, MOST_CHARACTERS)
    return "".join(f"\\{one}" if one in _MARKUP else _ENTITIES.get(one, one) for one in shown)


def _markdown_cell(text: str, kind: Kind) -> str:
    """Return text for a cell of a Markdown table; a command as it is, so that a copy of it runs."""
    if kind != "command" or not text:
        return _plain(text)
    fence = "``" if "`" in text else "`"
    return f"{fence}{visible(text, MOST_CHARACTERS)}{fence}".replace("|", "\\|")


_MARKUP: Final = frozenset("\\`*_{}[]()#+!|~@")
_ENTITIES: Final = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
