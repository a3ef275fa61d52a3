"""Startup: what a broker does with a partition's directory when it starts. Nothing here writes.

    `file_names`  files that it deletes, renames or cannot load, by their names alone
    `load_plan`   which segments it recovers, by the checkpoints and by which indexes there are

Mirrors `LogManager` and `LogLoader`.
"""
