"""Boot: builds a directory on which a stock broker starts, from partition directories whose cluster is gone.

    `sources`       finds the partitions in the sources; restores the segments of tiered topics in remote storage
    `coordinators`  reads committed offsets and transactional ids, or offsets from a file
    `staging`       verifies and copies partitions, and rebuilds their derived files; makes one log from copies that
                    differ or are damaged
    `known_topics`  tells topics that were deleted from those that an old metadata log lacks
    `topics`        plans ids, partition counts and settings of topics, with the origin of each fact
    `metadata_log`  makes the records of the new metadata log; writes a snapshot, and the state of the quorum
    `images`        images of containers: paths, owners, and the commands that start them
    `report`        the result, and the next commands
    `boot`          the public function
    `quorum`        rescues a quorum of controllers of which one survives
    `sample`        writes a small log dir to try the commands on

This package only reads the sources. `repair.recovering.preflight` checks the staged result before it appears.
"""
