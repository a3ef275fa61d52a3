import re

import pytest

import kafkalog
from kafkalog.cli.reading import batches, cat
from kafkalog.column_names import ALL_COLUMNS, CONTEXT_COLUMNS, OWN_COLUMNS, TEXT_COLUMNS
from kafkalog.operations.cat import Record
from kafkalog.records.columns import ALL_COLUMNS as COLUMNS_OF_RECORDS
from kafkalog.scanning.batch_scan import BATCH_COLUMNS


def test_each_name_has_a_type():
    assert {*COLUMNS_OF_RECORDS, *CONTEXT_COLUMNS} == {*ALL_COLUMNS}
    assert {*OWN_COLUMNS} <= {*COLUMNS_OF_RECORDS}


def test_records_for_people_have_the_columns_of_lines_for_people():
    assert Record._fields == TEXT_COLUMNS


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (cat.COMMAND.description, ALL_COLUMNS),
        (kafkalog.scan.__doc__, ALL_COLUMNS),
        (kafkalog.codec.decode.__doc__, [name for name in ALL_COLUMNS if name not in CONTEXT_COLUMNS]),
        (batches.COMMAND.description, BATCH_COLUMNS),
    ],
    ids=["cat", "scan", "codec.decode", "batches"],
)
def test_help_lists_all_columns_in_their_order(text, names):
    """Texts are not made from the names: they say more about some of them."""
    place = re.search(rf"(?<=: ){names[0]}, {names[1]}, ", text).start()
    listed = [one for one in re.findall(r"\w+", text[place:]) if one in names]
    assert [*dict.fromkeys(listed)] == [*names]
