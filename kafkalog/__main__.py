"""``python -m kafkalog`` runs the command line, as the command `kafkalog` does."""

from __future__ import annotations

import sys

from kafkalog.cli import main

if __name__ == "__main__":
    sys.exit(main())
