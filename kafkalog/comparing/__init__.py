"""Compares topics by the content of their records, and translates offsets from one to the other.

    `digests`          the records of both sides as rows of a database on disk: place, and a digest of the content
    `matching_topics`  what is compared, and which topic of one side is which of the other
    `record_pairs`     which record of one side is which of the other
    `content`          what is equal, missing, moved or repeated, as ranges of offsets
    `translation`      committed offsets of groups to offsets of the other side

Data flows in this order.
"""
