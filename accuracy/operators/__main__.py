"""`python -m accuracy.operators`: write what operators reach, as tidegate ships it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from accuracy.operators.shares import Operators, text
from accuracy.operators.tables import SYSTEMS

FILE = Path(__file__).parents[2] / "src" / "tidegate" / "data" / "operators.toml"


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser(prog="python -m accuracy.operators", description=__doc__)
    parser.add_argument("--to", type=Path, metavar="FILE", default=FILE, help="another file")
    arguments = parser.parse_args()
    written = text({name: Operators(name).shares() for name in SYSTEMS})
    arguments.to.write_text(written, encoding="utf-8")
    sys.stdout.write(f"{arguments.to}: {len(SYSTEMS)} accelerators\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
