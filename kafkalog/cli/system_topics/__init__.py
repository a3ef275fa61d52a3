"""Commands about the topics that hold state.

    `groups`         lists consumer groups
    `transactions`   lists transactions, and those that hang
    `metadata`       lists the content of the cluster's metadata log
    `schemas`        lists a registry's schemas
    `state_options`  the options that these share

A command is imported when it runs; `kafkalog.cli.commands` names them.
"""
