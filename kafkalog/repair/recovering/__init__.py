"""Recovering: what a broker does with its log dirs when it starts, offline; and its dry run.

    `recover`       the function, for a log dir or a partition
    `preflight`     the dry run, of clean starts too: with strays, retention and the files of the log dirs
    `partition`     one partition: which logs are cut, what is deleted, what is written
    `replay_check`  batches at which a broker stops, and the leader epochs that it finds
    `settings`      settings of the cluster and the broker, and what retention deletes by them
    `log_dir`       the checkpoints and the clean-shutdown marker of the log dir
    `report`        the results

`survey.startup` has the plans. Reading segments and building derived files is `operations.rebuilding`'s work;
`repair.placement` places the files.
"""
