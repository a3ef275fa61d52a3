"""Boot: a cluster is gone, its partition directories are there; a stock broker starts on what is made of them.

    `targets`       releases of Kafka: levels of features, and which settings they take
    `sources`       the partitions in the sources, and which copy of each is taken
    `coordinators`  committed offsets and transactional ids; offsets from a file
    `staging`       partitions verified and copied, with what is derived from them
    `topics`        ids, numbers of partitions and settings of topics, and where each fact comes from
    `new_cluster`   the records of the new metadata log
    `metadata_log`  the snapshot that holds them, and its quorum
    `report`        what was done, and the commands to run next
    `boot`          the function
    `quorum`        a quorum of controllers of which one survives

The sources are only read. The result is staged, checked by `repair.recovering.preflight`, and appears in one step.
"""
