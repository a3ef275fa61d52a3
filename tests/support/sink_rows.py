"""Frames for the sink, and the rows that they become."""

import pyarrow as pa

import kafkalog
import kafkalog.spark


def frame(session, n=300, first=0):
    """Records with nulls, empty strings and headers; timestamps rise with the id."""
    return session.range(first, first + n, 1, 3).selectExpr(
        "CASE WHEN id % 7 > 0 THEN CAST(concat('k', id % 40) AS binary) END AS key",
        "CASE WHEN id % 11 > 0 THEN CAST(concat('v', id) AS binary) WHEN id % 2 > 0 THEN X'' END AS value",
        "CASE WHEN id % 5 = 0 THEN array(struct('h' AS key, CAST(id AS string) AS value),"
        " struct('h' AS key, CAST(NULL AS string) AS value)) END AS headers",
        "timestamp_millis(1700000000000 + id) AS timestamp",
    )


def save(df, path, **options):
    given = {name.replace("__", "."): str(value) for name, value in options.items()}
    df.write.format("kafkalog").mode("append").options(**given).save(str(path))


def hidden(folder):
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def rows(path):
    assert [str(finding) for finding in kafkalog.verify(path, deep=True).findings] == []
    columns = ["partition", "offset", "key", "value", "headers", "timestamp"]
    table = kafkalog.read_table(path, columns=columns)
    stamps = table.column("timestamp").cast(pa.int64())
    table = table.set_column(table.schema.get_field_index("timestamp"), "timestamp", stamps)
    return sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"]))


def plain(df):
    return [
        (
            row.key and bytes(row.key),
            row.value if row.value is None else bytes(row.value),
            [(header.key, header.value and header.value.encode()) for header in row.headers or ()],
            row.ms,
        )
        for row in df.selectExpr("key", "value", "headers", "unix_millis(timestamp) AS ms").collect()
    ]


def fails_at(session, number):
    return frame(session).selectExpr(
        "*", f"CASE WHEN unix_millis(timestamp) = {1700000000000 + number} THEN raise_error('boom') END AS broken"
    )
