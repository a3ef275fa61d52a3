"""Bytes of files: read in windows; written under a temporary name, made durable, moved into place.

    `source`           bytes of a file, a window at a time: mapped, read, or in memory
    `buffer_pool`      memory for windows that is used again
    `open_file_limit`  room for the files that have to be open at once
    `broker_lock`      whether a broker runs on a log dir
    `output_paths`     where output may go, and where it is staged
    `atomic`           single steps with files that last
    `staging`          files and directories that are staged and appear in one step
    `moves`            staged files moved into a directory that is there, in an order, with undo

Nothing here knows what is in a file.
"""
