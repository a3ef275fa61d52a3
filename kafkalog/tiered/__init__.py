"""Partitions whose older segments are in remote storage (KIP-405), read as one log.

    `aiven`     the objects of Aiven's plugin: manifests, chunks, encryption
    `layouts`   finds the copies of segments in remote storage, however they are laid out
    `chain`     which copies count: the chain of leader epochs
    `joined`    a store that shows local files and the copies that count as one log dir

Nothing here knows which records are wanted.
"""
