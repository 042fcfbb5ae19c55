"""``python -m trainers.grpo``: the same as ``drv train grpo``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from trainers.cli import main as drv


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``drv train grpo`` with these arguments; see :func:`trainers.cli.main`."""
    given = sys.argv[1:] if arguments is None else arguments
    return drv(["train", "grpo", *given])


if __name__ == "__main__":
    sys.exit(main())
