"""Finds the batches of deleted segments in the image of a disk, and joins them to partitions.

    `images`           bytes of a disk to the headers of intact batches, resumable
    `fragments`        headers to fragments: batches of one file without a gap between them
    `joining`          fragments to chains of one partition, with the evidence for each join
    `divided_batches`  batches that lie in two places to whole ones
    `topic_names`      metadata records to the names of topics
    `undelete`         chains to partitions on disk, and the report

Data flows in this order.
"""
