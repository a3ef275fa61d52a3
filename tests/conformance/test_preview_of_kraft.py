"""Records of 2.8's preview of KRaft are printed as 2.8.2's own tool prints them."""

import random

import pytest
from builder import batch_v2, record_v2
from conformance.jars import OLD_KAFKA_VERSION
from conformance.kafka import run_java
from effort import examples
from message_bytes import made_up

import kafkalog
from kafkalog.protocol.definitions import PREVIEW, messages
from kafkalog.protocol.encoder import encode_message, uvarint

pytestmark = [pytest.mark.broker, pytest.mark.slow]

UTF_8 = [f"-D{name}.encoding=UTF-8" for name in ("file", "stdout", "sun.stdout")]
OTHERS = [
    b"\x01\x02\x00abc",  # the frame that later versions write
    b"\x80\x01\x02",
    b"\0\x0d\0",  # types that 2.8 does not have
    b"\0\xff\xff\x03\0",
    b"\0\xff\xff\xff\xff\x0f\0",
]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    rng = random.Random(28)
    kinds = [message for name, message in messages().items() if name.startswith(PREVIEW)]
    assert len(kinds) == 14
    values = list(OTHERS)
    for number in range(examples(2000)):
        message = kinds[number % len(kinds)]
        # a version says nothing but in the items of arrays: a short, of which those above 0 are refused there
        version = rng.choice((0, 0, 0, 0, 1, 2, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0xFFFFFFFF))
        data = b"\0" + uvarint(message.key or 0) + uvarint(version)
        data += encode_message(message.name, 0, made_up(message.fields, 0, rng))
        values.append(data + b"behind it" * (number % 10 == 0))
    path = tmp_path_factory.mktemp("preview") / "__cluster_metadata-0" / f"{0:020d}.log"
    path.parent.mkdir()
    records = [record_v2(offset, 0, key=None, value=value) for offset, value in enumerate(values)]
    path.write_bytes(batch_v2(records))
    return path


@pytest.mark.parametrize("skip_record_metadata", [False, True])
def test_lines_are_those_of_the_tool(path, skip_record_metadata):
    options = ["--print-data-log", "--cluster-metadata-decoder", *["--skip-record-metadata"] * skip_record_metadata]
    with_jars = {"version": OLD_KAFKA_VERSION, "options": UTF_8}
    theirs = run_java("kafka.tools.DumpLogSegments", *options, "--files", path, **with_jars).splitlines()
    dump = kafkalog.dump(
        path, topic_decoder="cluster-metadata", dialect="2.8", skip_record_metadata=skip_record_metadata
    )
    ours = b"".join(dump.chunks()).decode().splitlines()
    assert ours == theirs
    read = sum("_RECORD" in line for line in ours)
    refused = sum("skipping. Can't read version " in line for line in ours)
    assert read > refused > 0
    assert read + refused == len(ours) - 3 - len(OTHERS)
