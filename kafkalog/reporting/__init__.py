"""Reports about whole log dirs, for people and for programs, from facts of the packages below.

    `tables`         tables of numbers and their text
    `space_meter`    bytes of files by kind, of batches by day and codec, and the keys with the most bytes
    `what_if`        the size with another codec, level or batch size, measured on a sample
    `space`          disk usage
    `contents`       the tables of a report, in one walk per partition; the next actions of retention and the cleaner
    `report`         the report: as JSON, Markdown or a page
    `page`           the page: HTML that needs no network

Nothing here changes a log dir.
"""
