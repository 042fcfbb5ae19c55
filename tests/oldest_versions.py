"""The oldest versions that pyproject.toml allows of what `make test-oldest` installs.

Without arguments prints a line ``name==version`` for each; with ``--check`` exits with a word
when the packages that this Python imports are others.
"""

import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

PACKAGES = (
    *("aiohttp", "charset-normalizer", "gymnasium", "idna", "jinja2", "lxml", "lxml_html_clean"),
    *("pypdf", "trafilatura", "yarl"),
)


def floors() -> dict[str, str]:
    """Name to the version after ``>=``."""
    project = tomllib.loads(
        (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    )["project"]
    found = {}
    for line in project["dependencies"]:
        match = re.match(r"([\w.-]+)>=([\w.]+)", line)
        if match is not None and match[1] in PACKAGES:
            found[match[1]] = match[2]
    missing = set(PACKAGES) - set(found)
    if missing:
        sys.exit(f"pyproject.toml gives no oldest version of {', '.join(sorted(missing))}")
    return found


if __name__ == "__main__":
    for name, oldest in floors().items():
        if "--check" not in sys.argv:
            print(f"{name}=={oldest}")  # noqa: T201
        elif (version(name) + ".0.0").startswith(oldest + ".") is False:
            sys.exit(f"{name} {version(name)} is imported, not {oldest}")
