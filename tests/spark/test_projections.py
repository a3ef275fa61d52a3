"""A field has the same value in Spark as in a scan, whatever else is decoded."""

import pytest
from histories import History

import kafkalog

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore::kafkalog.DecodeWarning")]


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 15])
def test_spark_agrees_with_a_scan_that_decodes_everything(spark, seed, tmp_path):
    kafkalog.spark.register(spark)
    history = History(seed, tmp_path / "log")
    given = history.options["decode"]["value"]
    options = {"valueFormat": given if isinstance(given, str) else given["format"]}
    if isinstance(given, dict):
        options |= {"valueSchema": given["schema"], "valueMessage": given["message"], "framed": "false"}
    if "schemas" in history.options:
        (tmp_path / "schemas").mkdir()
        for number, text in history.options["schemas"].items():
            (tmp_path / "schemas" / f"{number}.avsc").write_text(text)
        options["schemas"] = str(tmp_path / "schemas")

    def read(**more):
        return (
            spark.read.format("kafkalog")
            .options(onDecodeError="null", **options, **more)
            .load(str(history.path))
            .collect()
        )

    whole = kafkalog.read_table(history.path, columns=["offset", "value", "value_error"], **history.options)
    rows = read(columns="offset,value,value_error")
    assert [row["value_error"] for row in rows] == whole.column("value_error").to_pylist()
    names = [one.name for one in whole.schema.field("value").type]
    texts = {name: [row["value"] and str(row["value"][name]) for row in rows] for name in names}
    for name in names:
        alone = read(columns=f"offset,value.{name}")
        assert [row["value"] and str(row["value"][name]) for row in alone] == texts[name]
        filtered = read(columns="offset", filters=f"value.{name} is not null")
        wanted = [row["offset"] for row in rows if row["value"] is not None and row["value"][name] is not None]
        assert sorted(row["offset"] for row in filtered) == wanted
    expected = whole.column("value").to_pylist()
    assert [row["value"] is None for row in rows] == [one is None for one in expected]
    for name in names:
        assert [row["value"] is None or row["value"][name] is None for row in rows] == [
            one is None or one[name] is None for one in expected
        ]
