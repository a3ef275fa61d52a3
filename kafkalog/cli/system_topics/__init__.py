"""Commands about the topics that hold state.

    `groups`         lists groups of consumers
    `transactions`   lists transactions, and those that hang
    `metadata`       lists what the cluster's metadata log says
    `schemas`        lists a registry's schemas
    `state_options`  options that these have in common

A command is imported when it runs; `kafkalog.cli.commands` names them.
"""
