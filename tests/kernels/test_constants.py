"""Numbers of Kafka's format, and bounds, that kernels spell out are those of the Python modules."""

import re
from pathlib import Path

import kafkalog
from kafkalog import format as kf
from kafkalog.scanning.scan import MAX_BATCH_BYTES

SOURCES = Path(kafkalog.__file__).parent / "_kernels"
OTHER_NAMES = {
    "LOG_APPEND_TIME_BIT": kf.TIMESTAMP_TYPE_BIT,
    "HEADER_BYTES": kf.RECORD_BATCH_OVERHEAD,
    "OVERHEAD": kf.RECORD_BATCH_OVERHEAD,
    "V2_OVERHEAD": kf.RECORD_BATCH_OVERHEAD,
    "MOST_COLUMN_BYTES": MAX_BATCH_BYTES,
}


def test_numbers_of_kernels_are_those_of_python():
    known = {**vars(kf), **OTHER_NAMES}
    numbers = [
        (source.name, name, int(number, 0))
        for source in sorted([*SOURCES.glob("*.pyx"), *SOURCES.glob("*.pxd")])
        for name, number in re.findall(r"(?m)^ +([A-Z][A-Z0-9_]+) = (0x[0-9A-Fa-f]+|\d+)\b", source.read_text())
        if name in known
    ]
    assert [one for one in numbers if one[2] != known[one[1]]] == []
    assert {name for _, name, _ in numbers} > OTHER_NAMES.keys(), "all are looked at"
