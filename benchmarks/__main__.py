"""`python -m benchmarks NAME [OPTIONS]`: run one measurement and print its tables."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def main() -> int:
    """Run `benchmarks.NAME.main()`; without a name, list them."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if "\ndef main(" in path.read_text("utf-8"))
    names = [name for name in names if not name.startswith("_")]
    if len(sys.argv) < 2 or sys.argv[1] not in names:
        print(f"usage: python -m benchmarks NAME; NAME is one of: {', '.join(names)}", file=sys.stderr)
        return 2
    module = importlib.import_module(f"benchmarks.{sys.argv[1]}")
    module.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
