"""Partitions whose older segments are in remote storage (KIP-405), read as one log.

    `aiven`     the objects of Aiven's plugin: manifests, chunks, encryption
    `identity`  whether a `.log` is the one that its metadata describes
    `layouts`   finds the copies of segments in remote storage, however they are laid out
    `chain`     the copies that a broker would read, by the chain of leader epochs
    `joined`    a store that shows local files and these copies as one log dir

Nothing here selects records.
"""
