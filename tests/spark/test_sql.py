"""Log dirs in SQL: a view is a snapshot, and a table is refused before anybody relies on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kafkalog
import kafkalog.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def append(root: Path, n: int) -> None:
    with kafkalog.PartitionWriter(root / "t-0") as writer:
        writer.append({"value": [b"v"] * n})


def test_a_view_is_a_snapshot_until_it_is_made_again(session: SparkSession, tmp_path: Path) -> None:
    append(tmp_path, 5)
    view = f"create or replace temporary view records using kafkalog options (log_dir '{tmp_path}')"
    count = "select count(*) from records"
    session.sql(view)
    assert session.sql(count).first()[0] == 5  # type: ignore[index]
    append(tmp_path, 2)
    session.sql("refresh table records")
    assert session.sql(count).first()[0] == 5  # type: ignore[index]
    session.sql(view)
    assert session.sql(count).first()[0] == 7  # type: ignore[index]


def test_a_table_is_refused_with_what_works(session: SparkSession, tmp_path: Path) -> None:
    append(tmp_path, 5)
    with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
        session.sql(f"create table refused using kafkalog options (log_dir '{tmp_path}')")
    assert "refused" not in [table.name for table in session.catalog.listTables()]
    # with columns, Spark asks no source before the first query
    session.sql(f"create table columns_given (offset bigint) using kafkalog options (log_dir '{tmp_path}')")
    try:
        with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
            session.sql("select * from columns_given").collect()
    finally:
        session.sql("drop table columns_given")
