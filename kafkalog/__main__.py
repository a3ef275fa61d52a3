"""``python -m kafkalog`` is the command `kafkalog`."""

from __future__ import annotations

import sys

from kafkalog.cli import main

if __name__ == "__main__":
    sys.exit(main())
