"""Reads valid batches of files faster than `header_walk`.

    `batch_reader`   walks a segment with a fast reader, and with `walk` where that stops; checks checksums
    `header_reader`  reads only headers, if the file is in the page cache
    `record_windows`  valid batches to record batches or columns, one kernel call per window
    `record_reader`  records of valid batches; reads ahead, one window per call

`header_walk` and `decode` handle all other batches, and report errors.
"""
