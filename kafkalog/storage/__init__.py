"""Bytes of files: read in windows; written under a temporary name, made durable, moved into place.

    `source`           reads the bytes of a file in windows: mapped, with `pread`, or in memory
    `ranges`           bytes that are fetched in ranges, such as an object of an object store
    `location`         places of files that are not local, and what is done with paths of either kind
    `stores`           object stores and other remote file systems, through obstore and fsspec
    `bad_sectors`      reads a file from a disk that cannot read all of it
    `buffer_pool`      reuses the memory of windows
    `open_file_limit`  raises the limit on open files
    `file_locks`       the locks that an operating system has: `flock` and record locks
    `removals`         directories that a running broker removes or replaces while they are read
    `broker_lock`      checks and holds the locks of log dirs and partitions
    `output_paths`     checks where output may go, and chooses where it is staged
    `atomic`           single durable steps: rename, exchange, truncate, fsync
    `staging`          stages files and directories, which then appear in one step
    `uploads`          objects that are written to a store
    `copying`          copies files into staged outputs and backups
    `moves`            moves staged files into an existing directory, in a given order, with undo

Nothing here knows what is in a file.
"""
