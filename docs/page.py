"""Draws `_static/report.png`: the first screen of a report on a sample with one damaged batch.

It needs Chromium and Pillow.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from PIL import Image

import kafkalog

HERE = Path(__file__).parent
SIZE = "1200,720"


def damaged_sample(root: Path) -> None:
    """Make the log dir of `kafkalog sample`, and flip a byte in one batch."""
    kafkalog.sample(root)
    (log,) = (root / "orders-1").glob("*.log")
    data = bytearray(log.read_bytes())
    data[3000] ^= 0xFF
    log.write_bytes(data)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        root, page = Path(place) / "kafka", Path(place) / "report.html"
        damaged_sample(root)
        text = kafkalog.report(root).to_html().replace(str(root), "/var/lib/kafka")
        page.write_text(text, encoding="utf-8")
        picture = HERE / "_static" / "report.png"
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE}"]
        subprocess.run(["chromium", *options, f"--screenshot={picture}", page.as_uri()], check=True)
        Image.open(picture).convert("RGB").quantize(128).save(picture, optimize=True)
