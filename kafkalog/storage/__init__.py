"""Bytes of files: read in windows; written under a temporary name, made durable, moved into place.

    `source`           reads the bytes of a file in windows, or maps them; bytes in memory
    `ranges`           bytes that are fetched in ranges, such as an object of an object store
    `store`            what a place of files can do: the abstract `Store`
    `local`            the local disk as a store
    `location`         a path in a store, and functions for local and remote paths
    `files`            opens, reads and measures a file, also if a running broker has renamed it
    `listing`          a directory by one listing: names, kinds, sizes and times
    `memory`           bytes in memory as a store
    `stores`           object stores and other remote file systems, through obstore and fsspec
    `bad_sectors`      reads a file from a disk with unreadable sectors
    `buffer_pool`      reuses the memory of windows
    `open_file_limit`  raises the limit on open files
    `file_locks`       the locks of the operating system: `flock` and record locks
    `removals`         directories that a running broker removes or replaces during a read
    `broker_lock`      checks and holds the locks of log dirs and partitions
    `output_paths`     checks where output may go, and chooses where it is staged
    `atomic`           single durable steps: rename, exchange, truncate, fsync
    `own_names`        names of staged output, replaced output, backups and jobs
    `staging`          stages files and directories, which then appear in one step
    `uploads`          objects that are written to a store
    `room`             whether copies of logs fit next to an output
    `copying`          copies files into staged outputs and backups
    `moves`            moves staged files into an existing directory, in a given order, with undo

Nothing here knows the content of files.
"""
