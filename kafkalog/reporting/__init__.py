"""Reports about whole log dirs, for people and for programs. Facts come from the packages below; nothing is found here.

    `tables`         tables of numbers and their text
    `outlook`        what retention and the log cleaner will do, and what holds them up
    `space_meter`    bytes of files by kind, of batches by day and codec, and the keys with the most bytes
    `what_if`        the size with another codec, level or batch size, measured on a sample
    `space`          who uses the disk
    `contents`       the tables of a report, in one walk per partition
    `report`         the report: as JSON, Markdown or a page
    `page`           the page: HTML that needs no network

Nothing here changes a log dir.
"""
