"""Logs to dump, and what comes of it."""

import builder

import kafkalog
from kafkalog.errors import KafkalogError

ONE = builder.record_v2(0, 0, b"k", b"v")


OPTIONS = (
    {},
    {"deep_iteration": True},
    {"print_data_log": True},
    {"print_data_log": True, "skip_record_metadata": True},
    {"print_data_log": True, "dialect": "2.8"},
    {"print_data_log": True, "max_bytes": 200},
)


def dumped(path, **options):
    """The lines of one file, and one that begins with ``EXCEPTION`` where the tool throws."""
    lines = []
    try:
        lines.extend(kafkalog.dump(path, **options))
    except KafkalogError as error:
        lines.append(f"EXCEPTION {error}")
    return lines


def write_log(folder, data, base_offset=0):
    path = folder / f"{base_offset:020d}.log"
    path.write_bytes(data)
    return str(path)


def findings(path, **options):
    dump = kafkalog.dump(path, **options)
    for _ in dump:
        pass
    return [(finding.reason, finding.damage) for finding in dump.findings]
