"""The suite in other places: other processors, threads, users, folders and terminals.

``make test-anywhere`` runs it.  Every place is one run of pytest on a copy of the working tree
in a folder with a space in its name, started with SIGINT ignored, in the C locale, on a narrow
terminal without colours.  The places differ in what the processor offers to torch, threads,
noise in the last digits (:mod:`tests.logit_noise`), the order of hashes and the user.

The first place runs everything; the others run what touches floats: all of ``tests/`` but the
folders of :data:`WITHOUT_FLOATS`, so that a new test is among them unless somebody says it isn't.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
WITHOUT_FLOATS = ("adapters", "cluster", "env", "golden", "rewards", "tools", "worlds")
"""Folders of tests that import no torch; ``test_anywhere.py`` holds them to it."""
NOBODY: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}


@dataclass(frozen=True)
class Place:
    """One run.

    Attributes:
        capability: ATEN_CPU_CAPABILITY.
        threads: of torch, a worker.
        hash_seed: PYTHONHASHSEED.
        noise: DRV_TEST_NOISE; empty for none.
        everything: whether tests without floats run too.
        other_user: whether it runs as nobody, where this process may change its user.
    """

    capability: str
    threads: int
    hash_seed: int
    noise: str = ""
    everything: bool = False
    other_user: bool = False

    def variables(self, home: Path) -> dict[str, str]:
        """The environment of the run."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("LC_", "DRV_", "PYTEST_", "PYTHON"))
        }
        return kept | {
            "ATEN_CPU_CAPABILITY": self.capability,
            "OMP_NUM_THREADS": str(self.threads),
            "PYTHONHASHSEED": str(self.hash_seed),
            "PYTHONDONTWRITEBYTECODE": "1",
            "DRV_TEST_NOISE": self.noise,
            "LANG": "C",
            "TERM": "dumb",
            "COLUMNS": "40",
            "NO_COLOR": "1",
            "HOME": str(home),
            "XDG_CACHE_HOME": str(home / "cache"),
        }


PLACES = (
    Place("avx2", 1, 1, everything=True, other_user=True),
    Place("default", 2, 2, "1e-6:1"),
    Place("avx2", 2, 3, "1e-6:2"),
    Place("default", 1, 4, "1e-6:3", other_user=True),
)


def copy_tree(target: Path) -> None:
    """The working tree without what git ignores and without .git."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def runs(python: str, *arguments: str) -> bool:
    """Whether nobody can run this Python."""
    try:
        done = subprocess.run(
            [python, *arguments, "-c", "import pytest, torch"],
            cwd="/",
            capture_output=True,
            **NOBODY,  # type: ignore[call-overload]
        )
    except PermissionError:
        return False
    return done.returncode == 0


def python_of_nobody(folder: Path) -> str | None:
    """A Python with the suite's packages that nobody may run; None where there is none.

    Where it stands in a home that others may not enter, a venv on the system's Python of the
    same version borrows its packages.
    """
    if os.geteuid() != 0:
        return None
    if runs(sys.executable):
        return sys.executable
    system = Path("/usr/bin/python{}.{}".format(*sys.version_info))
    if not system.exists():
        return None
    venv = folder / "venv"
    subprocess.run([system, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = venv.glob("lib/*/site-packages")
    borrowed = "\n".join(path for path in sys.path if path.endswith("site-packages"))
    (packages / "borrowed.pth").write_text(borrowed, encoding="utf-8")
    drv = venv / "bin" / "drv"
    drv.write_text(
        f"#!/bin/sh\nexec '{venv}/bin/python' -m trainers.cli \"$@\"\n", encoding="utf-8"
    )
    drv.chmod(0o755)
    python = str(venv / "bin" / "python")
    return python if runs(python) else None


def visit(place: Place, workers: str, more: list[str]) -> int:
    """Run the suite there; pytest's exit status."""
    with tempfile.TemporaryDirectory(prefix="drv anywhere ") as made:
        top, tree, home = Path(made), Path(made, "drv env"), Path(made, "home")
        top.chmod(0o755)
        copy_tree(tree)
        home.mkdir()
        (top / "tmp").mkdir()
        python = python_of_nobody(top) if place.other_user else None
        if python is not None:
            for path in (top, *top.rglob("*")):
                os.chown(path, NOBODY["user"], NOBODY["group"], follow_symlinks=False)
        elif place.other_user:
            say("as the same user: nobody else can be, or may run this Python")
        left_out = () if place.everything else WITHOUT_FLOATS
        asked = [
            *(python or sys.executable, "-m", "pytest", "-q", "-m", "not slow"),
            *("-p", "no:cacheprovider", "--basetemp", str(top / "tmp" / "t")),
            *("-n", workers, "--dist", "loadfile", "--no-loadscope-reorder"),
            *(f"--ignore=tests/{name}" for name in left_out),
            *(more or ([] if place.everything else ["tests"])),
        ]
        return subprocess.run(
            asked,
            cwd=tree,
            env=place.variables(home) | {"PYTHONPATH": str(tree), "TMPDIR": str(top / "tmp")},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
            **({} if python is None else NOBODY),  # type: ignore[call-overload]
        ).returncode


def say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--places", type=int, nargs="*", help="which, from 1; all by default")
    parser.add_argument("--workers", default="auto", help="processes at once")
    asked, more = parser.parse_known_args()
    bad = []
    for number in asked.places or range(1, len(PLACES) + 1):
        place, start = PLACES[number - 1], time.monotonic()
        say(f"place {number} of {len(PLACES)}: {place}")
        if visit(place, asked.workers, more):
            bad.append(number)
        say(f"place {number} took {time.monotonic() - start:.0f} s")
    say(f"failed in places {bad}" if bad else "the same everywhere")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
