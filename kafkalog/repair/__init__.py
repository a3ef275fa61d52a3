"""Repair: what a broker would do with a log that is damaged, and what kafkalog does about it before the broker starts.

It stands on the readers and on `operations`; outputs are staged and published as `storage` and `writing` know how.
Sources are never modified unless `in_place` is asked for, and then a backup is kept.
"""
