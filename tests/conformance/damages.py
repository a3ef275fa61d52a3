"""Damage to `.log` files: changes of their bytes, told where the batches begin, and where the last one ends."""

import random

import kafkalog


def flip(data, at, rng):
    """A bit somewhere under a checksum."""
    data[rng.randrange(at[len(at) // 2 - 1] + 21, at[len(at) // 2])] ^= 1 << rng.randrange(8)


def flip_in_the_last(data, at, rng):
    data[rng.randrange(at[-2] + 21, at[-1])] ^= 1 << rng.randrange(8)


def flip_in_the_first(data, at, rng):
    data[rng.randrange(at[0] + 21, at[1])] ^= 1 << rng.randrange(8)


def cut_in_a_batch(data, at, rng):
    del data[rng.randrange(at[-2] + 61, at[-1]) :]


def cut_in_a_header(data, at, rng):
    del data[at[len(at) // 2] - rng.randrange(1, 4) :]
    data += bytes(data[:20])


def cut_in_a_size(data, at, rng):
    del data[at[-2] + 5 :]


def cut_between(data, at, rng):
    """Not to be noticed."""
    del data[at[-2] :]


def zero_tail(data, at, rng):
    data += bytes(rng.choice([12, 17, 18, 400]))


def zero_hole(data, at, rng):
    place = at[len(at) // 2 - 1]
    data[place : place + 64] = bytes(64)


def garbage_tail(data, at, rng):
    data += rng.randbytes(500)


def swap(data, at, rng):
    """Two neighbours change places, with their checksums; what is last in the file has not the last offset."""
    first, second, end = at[-3:] if len(at) > 3 else at[:3]
    data[first:end] = data[second:end] + data[first:second]


def swap_in_the_middle(data, at, rng):
    first, second, end = at[len(at) // 2 - 1 :][:3] if len(at) > 4 else at[:3]
    data[first:end] = data[second:end] + data[first:second]


def repeat(data, at, rng):
    data += data[at[-2] : at[-1]]


def leave_out(data, at, rng):
    """A gap is not noticed."""
    del data[at[len(at) // 2 - 1] : at[len(at) // 2]]


def size_too_large(data, at, rng):
    data[at[len(at) // 2 - 1] + 8] = 0x3F


def size_too_small(data, at, rng):
    data[at[len(at) // 2 - 1] + 8 : at[len(at) // 2 - 1] + 12] = (13).to_bytes(4, "big")


def magic_3(data, at, rng):
    """Outside the checksum, and not noticed."""
    data[at[len(at) // 2 - 1] + 16] = 3


DAMAGES = (
    *(flip, flip_in_the_last, flip_in_the_first, cut_in_a_batch, cut_in_a_header, cut_in_a_size, cut_between),
    *(zero_tail, zero_hole, garbage_tail, swap, swap_in_the_middle, repeat, leave_out),
    *(size_too_large, size_too_small, magic_3),
)


def in_log(damage, rng, log):
    """Damage a segment."""
    data = bytearray(log.read_bytes())
    damage(data, [*kafkalog.Segment(log).batches.position.tolist(), len(data)], rng)
    log.write_bytes(data)


def damage_partitions(log_dir):
    """Each kind of damage to a middle and to the last segment of some partition; returns what was done where."""
    rng = random.Random(5)
    damaged = {}
    todo = [(damage, place) for place in ("last", "middle") for damage in DAMAGES]
    for directory in sorted(path for path in log_dir.iterdir() if path.is_dir()):
        # of a log start above the end a broker makes an empty log
        if directory.name.startswith(("__", "trimmed", "held-back")) or not todo:
            continue
        segments = [one for one in kafkalog.Partition(directory).segments if len(one.batches) > 2]
        todo.sort(key=lambda one: (one[1] == "middle") != (len(segments) > 2))
        if not segments or (todo[0][1] == "middle" and len(segments) < 3):
            continue
        damage, place = todo.pop(0)
        segment = segments[len(segments) // 2] if place == "middle" else segments[-1]
        in_log(damage, rng, segment.path)
        damaged[directory.name] = f"{damage.__name__} in {place} {segment.path.name}"
    return damaged
