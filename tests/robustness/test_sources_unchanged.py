"""What reads, and what writes elsewhere, never opens a source for writing: seen from outside, by strace."""

import re
import shutil
import subprocess
import sys

import pytest
from needs import missing

CALLS = (
    "open,openat,openat2,creat,truncate,unlink,unlinkat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,mkdir"
    ",mkdirat,rmdir,mknod,mknodat,chmod,fchmodat,chown,fchownat,utimensat,setxattr,removexattr"
)
PROGRAM = """
import sys, kafkalog
source, out = sys.argv[1:]
kafkalog.read_table(source, on_corruption="skip")
kafkalog.verify(source)
kafkalog.preflight(source, clean=False)
kafkalog.reindex(source, output=out + "/reindexed")
kafkalog.recover(source, output=out + "/recovered")
kafkalog.salvage(source, output=out + "/salvaged")
kafkalog.merge([source, source + "-2"], output=out + "/merged")
kafkalog.truncate(source + "/p-txn-0", to_offset=100, output=out + "/truncated")
kafkalog.trim(source + "/p-txn-0", before_offset=100, output=out + "/trimmed")
kafkalog.diff(source + "/p-txn-0", source + "-2/p-txn-0")
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_call_that_writes_names_a_source(tmp_path, log_dir):
    strace = shutil.which("strace")
    if strace is None:
        missing("strace is not installed: nothing has seen from outside that sources are not written to")
    source, out, trace = tmp_path / "source", tmp_path / "out", tmp_path / "trace"
    for name in ("source", "source-2"):
        shutil.copytree(log_dir, tmp_path / name)
    log = next((source / "p-multi-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    out.mkdir()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("source*/**/*")}
    command = [str(strace), "-f", "-qq", "-s", "4096", "-e", f"trace={CALLS}", "-o", str(trace)]
    command += [sys.executable, "-W", "ignore", "-c", PROGRAM, str(source), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if "ptrace" in done.stderr.lower():
        missing(f"strace may not trace here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    lines = [line for line in trace.read_text(errors="replace").splitlines() if f'"{source}' in line]
    assert sum("O_RDONLY" in line for line in lines) > 50
    reads = re.compile(r"\b(open|openat)\(.*O_RDONLY(?!.*O_(CREAT|TRUNC|APPEND))")
    assert [line for line in lines if not reads.search(line)] == []
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("source*/**/*")} == before
    assert len(list(out.iterdir())) == 6
