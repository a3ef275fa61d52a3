"""What is wanted of records, as conditions: checked, bound to a place, and applied to batches and records.

    `filters`         `filters=`: conditions applied before any record is copied
    `filter_text`     the same conditions as text
    `expressions`     Arrow expressions applied to decoded columns

Nothing here opens files.
"""
