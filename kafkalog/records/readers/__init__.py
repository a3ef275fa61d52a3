"""Reads good batches of files faster than `header_walk` walks them.

    `batch_reader`   walks a segment with a reader, and with `walk` where that stops; checks checksums
    `header_reader`  reads headers alone, if the file is in the page cache
    `record_windows`  valid batches to record batches or columns, one kernel call per window
    `record_reader`  records of valid batches; reads ahead, one window per call

`header_walk` and `decode` handle all other batches, and report errors.
"""
