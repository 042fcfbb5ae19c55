"""``python -m trainers.igpo``: the same as ``drv train igpo``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from trainers.cli import main as drv


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``drv train igpo`` with these arguments; see :func:`trainers.cli.main`."""
    given = sys.argv[1:] if arguments is None else arguments
    return drv(["train", "igpo", *given])


if __name__ == "__main__":
    sys.exit(main())
