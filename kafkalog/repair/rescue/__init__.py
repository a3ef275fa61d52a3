"""Rescue: the plan for a partition, made from one or many copies, damaged or not.

    `replica`  the intact batches of one copy, its leader epochs, and what it lost
    `batches`  reads batches of copies, and finds records that compaction would have kept
    `plan`     chooses the copy that leads, cuts the others, and fills holes; the pieces, holes and doubts as data
    `writing`  writes the batches of a plan

`merge` and `boot` take the plan; `salvage` writes the batches of one copy while it searches them, with a quarantine
file. Nothing here knows the command line.
"""
