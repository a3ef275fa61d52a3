"""Decodes committed offsets from records of `__consumer_offsets`.

It knows versions 0 to 4, and no tagged field other than a topic id. Other and truncated records are left out.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kafkalog._kernels.wire cimport Cursor, load_be16, load_be32, load_be64, remaining

cdef extern from "utf8_impl.h":
    bint is_utf8 "kl_is_utf8"(const uint8_t* p, int64_t n) noexcept nogil

cdef enum:
    LEGACY = 0
    COMMIT = 1
    WITH_EXPIRY = 1
    WITH_EPOCH = 3
    FLEXIBLE = 4
    ONE_BYTE = 0x7F
    ID_TAG = 0
    ID_BYTES = 16


cdef struct Text:
    const uint8_t* begin
    int64_t size


cdef struct Commit:
    Text group
    Text topic
    Text metadata
    int64_t offset
    int64_t time
    int64_t expiry
    int32_t partition
    int32_t leader_epoch


cdef class Texts:
    """A text column under construction: offsets, and bytes with room for all texts."""

    cdef int64_t[::1] offsets
    cdef uint8_t[::1] data

    def __cinit__(self, int64_t[::1] offsets not None, uint8_t[::1] data not None):
        self.offsets, self.data = offsets, data

    cdef bint add(self, Py_ssize_t row, Text* text) noexcept nogil:
        cdef int64_t start = self.offsets[row]
        if text.size > self.data.shape[0] - start:
            return False
        if text.size:
            memcpy(&self.data[start], text.begin, <size_t>text.size)
        self.offsets[row + 1] = start + text.size
        return True


cdef inline const uint8_t* take(Cursor* cursor, int64_t size) noexcept nogil:
    """Take the next `size` bytes; NULL if there are fewer."""
    cdef const uint8_t* begin = cursor.pointer
    if not 0 <= size <= remaining(cursor):
        return NULL
    cursor.pointer += size
    return begin


cdef bint take_text(Cursor* cursor, Text* text, bint is_compact) noexcept nogil:
    """Take the next text. Its size has two bytes, or, if compact, one byte that is larger by 1."""
    cdef const uint8_t* size = take(cursor, 1 if is_compact else 2)
    if size == NULL or (is_compact and size[0] > ONE_BYTE):
        return False
    text.size = <int64_t>size[0] - 1 if is_compact else <int16_t>load_be16(size)
    text.begin = take(cursor, text.size)
    return text.begin != NULL and is_utf8(text.begin, text.size)


cdef bint read_key(Cursor* cursor, Commit* commit, int* kind) noexcept nogil:
    cdef const uint8_t* p = take(cursor, 2)
    if p == NULL:
        return False
    kind[0] = <int16_t>load_be16(p)
    if kind[0] != LEGACY and kind[0] != COMMIT:
        return False
    if not take_text(cursor, &commit.group, False) or not take_text(cursor, &commit.topic, False):
        return False
    p = take(cursor, 4)
    if p != NULL:
        commit.partition = <int32_t>load_be32(p)
    return p != NULL


cdef bint read_value(Cursor* cursor, Commit* commit, int kind) noexcept nogil:
    cdef const uint8_t* p = take(cursor, 10)
    cdef int version
    if p == NULL:
        return False
    version = <int16_t>load_be16(p)
    if not 0 <= version <= (0 if kind == LEGACY else FLEXIBLE):
        return False
    commit.offset = <int64_t>load_be64(p + 2)
    commit.leader_epoch = -1
    if version >= WITH_EPOCH:
        p = take(cursor, 4)
        if p == NULL:
            return False
        commit.leader_epoch = <int32_t>load_be32(p)
    if not take_text(cursor, &commit.metadata, version == FLEXIBLE):
        return False
    p = take(cursor, 16 if version == WITH_EXPIRY else 8)
    if p == NULL:
        return False
    commit.time = <int64_t>load_be64(p)
    commit.expiry = <int64_t>load_be64(p + 8) if version == WITH_EXPIRY else -1
    if version < FLEXIBLE:
        return True
    p = take(cursor, 1)  # the number of tagged fields
    if p == NULL or p[0] > 1:
        return False
    if p[0] == 0:
        return True
    p = take(cursor, 2)
    return p != NULL and p[0] == ID_TAG and p[1] == ID_BYTES and take(cursor, ID_BYTES) != NULL


def read_commits(keys not None, values not None, uint8_t[::1] is_commit not None, Texts group not None,
                 Texts topic not None, int32_t[::1] partition not None, int64_t[::1] offset not None,
                 int32_t[::1] leader_epoch not None, Texts metadata not None, int64_t[::1] time not None,
                 int64_t[::1] expiry not None):
    """Decode commit records into columns. Return their number.

    Keys and values are ``(offsets, data, valid)``; `valid` may be None. `is_commit` is set to 1 for each commit
    record, and the columns have one row for each of them.
    """
    cdef const int64_t[::1] key_offsets = keys[0], value_offsets = values[0]
    cdef const uint8_t[::1] key_data = keys[1], value_data = values[1]
    cdef const uint8_t[::1] key_valid = keys[2], value_valid = values[2]
    cdef Py_ssize_t n = is_commit.shape[0]
    cdef Py_ssize_t row, found = 0
    cdef Cursor key, value
    cdef Commit commit
    cdef int kind = 0
    cdef bint outside = False
    if (key_offsets.shape[0] != n + 1 or value_offsets.shape[0] != n + 1
            or (key_valid is not None and key_valid.shape[0] != n)
            or (value_valid is not None and value_valid.shape[0] != n)
            or min(partition.shape[0], offset.shape[0], leader_epoch.shape[0], time.shape[0], expiry.shape[0]) < n
            or min(group.offsets.shape[0], topic.offsets.shape[0], metadata.offsets.shape[0]) < n + 1):
        raise ValueError("columns differ in length")
    group.offsets[0] = topic.offsets[0] = metadata.offsets[0] = 0
    with nogil:
        for row in range(n):
            is_commit[row] = 0
            if (not set_cursor(&key, key_offsets, key_data, row)
                    or not set_cursor(&value, value_offsets, value_data, row)):
                outside = True
                break
            if (key_valid is not None and not key_valid[row]) or (value_valid is not None and not value_valid[row]):
                continue
            if not read_key(&key, &commit, &kind) or not read_value(&value, &commit, kind):
                continue
            if not (group.add(found, &commit.group) and topic.add(found, &commit.topic)
                    and metadata.add(found, &commit.metadata)):
                outside = True
                break
            partition[found], offset[found] = commit.partition, commit.offset
            leader_epoch[found], time[found], expiry[found] = commit.leader_epoch, commit.time, commit.expiry
            is_commit[row] = 1
            found += 1
    if outside:
        raise IndexError("a string lies outside its buffer")
    return found


cdef inline bint set_cursor(Cursor* cursor, const int64_t[::1] offsets, const uint8_t[::1] data,
                            Py_ssize_t row) noexcept nogil:
    cdef int64_t start = offsets[row], stop = offsets[row + 1]
    cursor.pointer = cursor.end = NULL
    if not 0 <= start <= stop <= data.shape[0]:
        return False
    if start < stop:
        cursor.pointer = &data[start]
        cursor.end = cursor.pointer + (stop - start)
    return True
