"""One header in Python has the numbers that the kernels read in bulk."""

import pytest
from golden_sets import unpacked

from kafkalog import open as open_log
from kafkalog.records.header import BatchHeader


@pytest.mark.parametrize("name", ["k44", "k28"])
def test_fields_are_those_of_the_batch_table(name):
    formats = set()
    for partition in open_log(unpacked(name)).values():
        for segment in partition.segments:
            data = segment.path.read_bytes()
            batches = segment.batches
            for row in range(0, len(batches), 7):
                header = BatchHeader(data[int(batches.position[row]) :])
                formats.add(header.magic)
                assert header.magic == batches.magic[row]
                assert header.size_in_bytes == batches.size_in_bytes[row]
                assert header.is_message == (header.magic < 2)
                assert header.attributes == batches.attributes[row]
                if header.is_whole_v2:
                    assert header.offset == batches.base_offset[row]
                    assert header.offset + header.last_offset_delta == batches.last_offset[row]
                    assert header.n_records == batches.records_count[row]
                else:
                    assert header.offset == batches.last_offset[row]
    assert formats == ({2} if name == "k44" else {0, 1, 2})


def test_a_byte_that_java_reads_as_negative_is_a_message():
    assert [BatchHeader(bytes(16) + bytes([magic])).is_message for magic in (0, 1, 2, 127, 128, 255)] == [
        *(True, True, False),
        *(False, True, True),
    ]
    assert not BatchHeader(bytes(16) + b"\2").is_whole_v2
