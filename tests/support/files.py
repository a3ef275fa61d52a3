"""What is in directories, to be compared with what was there before."""

import contextlib
import hashlib
import os
import subprocess
import sys

import kafkalog

_LARGE = 1 << 20
_LOCK = "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f,fcntl.LOCK_EX); print('held',flush=True); input()"


def content(directory):
    """All files under a directory, but for the lock file that kafkalog creates as a broker does, staged or not."""
    return {
        str(path.relative_to(directory)): _content_of(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != ".lock" and not path.name.startswith("..lock.")
    }


def hashes(root):
    return {name: hashlib.sha256(data).hexdigest() for name, data in content(root).items()}


def _content_of(path):
    """All bytes; of a large file, the zeros at its end as a number, for preallocated indexes are holes."""
    size = path.stat().st_size
    if size < _LARGE:
        return path.read_bytes()
    with path.open("rb") as file:
        end = 0
        with contextlib.suppress(OSError):  # there is nothing but a hole behind
            while end < size:
                end = os.lseek(file.fileno(), os.lseek(file.fileno(), end, os.SEEK_DATA), os.SEEK_HOLE)
        data = os.pread(file.fileno(), end, 0).rstrip(b"\0")
    return data + b" and %d zeros" % (size - len(data))


@contextlib.contextmanager
def broker_on(log_dir):
    """Another process holds the lock of a log dir, as a broker does."""
    lock = log_dir / ".lock"
    lock.touch()
    command = [sys.executable, "-c", _LOCK, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
        holder.communicate("\n")


def offsets_of(partition, **options):
    """Offsets of all records, those of control batches among them."""
    return kafkalog.read_table(partition, columns=["offset"], include_control=True, **options)["offset"].to_pylist()


def flip(path, position, bits=0x10):
    data = bytearray(path.read_bytes())
    data[position] ^= bits
    path.write_bytes(data)
