"""Reads good batches of files faster than `header_walk` walks them.

    `batch_reader`   walks a segment with a reader and, where that stops, with `walk`; the reader that checks checksums
    `header_reader`  headers alone, from what the system has in memory of the file
    `record_windows`  good batches to record batches or columns, a window a kernel call; runs of windows
    `record_reader`  the records of good batches, reads ahead, one window per call

A batch that is not plainly good is left to `header_walk` and `decode`, which say what is wrong with it.
"""
