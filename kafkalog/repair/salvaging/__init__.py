"""Salvage: every intact batch of a damaged log, and a report about the rest.

In reading order: `plan` finds the intact batches of a segment, `choosing` decides which of them are the log's own,
`output` writes them and describes the holes, `single_records` tries what is left of damaged batches, `report` has the
result, `salvage` is the public function. Nothing here knows the command line.
"""
