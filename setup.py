"""What pyproject.toml can't say: how names are shared with other packages (docs/design.md).

A wheel has no ``agents/__init__.py`` and no ``replay/__init__.py``: other distributions have
packages of these names, and so neither takes the other's away.  With the variable
DRV_ENV_NAMES=inside it has no such names at all: ``agents``, ``replay`` and ``trainers`` are
``drv_env.agents`` and so on.
"""

import os
import re
import shutil
import sysconfig
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

SHARED = ("agents", "replay")
MOVED = (*SHARED, "trainers")
INSIDE = os.environ.get("DRV_ENV_NAMES", "")
HERE = Path(__file__).parent

if INSIDE not in ("", "inside"):
    raise SystemExit(f"DRV_ENV_NAMES may be inside, or not set; it is {INSIDE!r}")


class Named(Distribution):
    """The packages of pyproject.toml, under drv_env where that is asked for."""

    def parse_config_files(self, *args, **arguments):
        super().parse_config_files(*args, **arguments)
        if INSIDE and self.packages:
            self.packages = [
                f"drv_env.{each}" if each.partition(".")[0] in MOVED else each
                for each in self.packages
            ]
            self.package_dir = {f"drv_env.{name}": name for name in MOVED}
            self.entry_points["console_scripts"] = ["drv = drv_env.trainers.cli:main"]


class BuildPy(build_py):
    """Copies modules: without what belongs to others, and with their imports moved inside."""

    def run(self):
        if INSIDE and self.editable_mode:
            raise SystemExit("DRV_ENV_NAMES=inside changes files: install without --editable")
        if not self.editable_mode:
            if not INSIDE:
                refuse_taken(sysconfig.get_path("purelib"))
            shutil.rmtree(self.build_lib, ignore_errors=True)  # what was built under other names
        super().run()

    def find_package_modules(self, package, package_dir):
        found = super().find_package_modules(package, package_dir)
        shared = package in SHARED and not self.editable_mode
        return [each for each in found if not (shared and each[1] == "__init__")]

    def build_module(self, module, module_file, package):
        outfile, copied = super().build_module(module, module_file, package)
        if INSIDE and Path(outfile).suffix == ".py":
            file = Path(outfile)
            file.write_text(moved_inside(file.read_text(encoding="utf-8")), encoding="utf-8")
        return outfile, copied


def moved_inside(text):
    """Source with every dotted name of a module of ours put under drv_env."""
    text = re.sub(
        rf"^(\s*(?:>>> |\.\.\. )?(?:from|import) )(?=(?:{'|'.join(MOVED)})[ .])",
        r"\1drv_env.",
        text,
        flags=re.MULTILINE,
    )

    def named(match):
        there = HERE / match[1] / match[2]
        ours = there.is_dir() or there.with_suffix(".py").is_file()
        return f"drv_env.{match[0]}" if ours else match[0]

    return re.sub(rf"(?<![\w./])({'|'.join(MOVED)})\.([a-z_]+)\b(?!/)", named, text)


def refuse_taken(installed):
    """Refuse to write over a file that another distribution has put there."""
    taken = {
        f"{name}/{file.relative_to(HERE / name).as_posix()}"
        for name in MOVED
        for file in (HERE / name).rglob("*.py")
        if not (name in SHARED and file.parent == HERE / name and file.name == "__init__.py")
    }
    for record in Path(installed).glob("*.dist-info/RECORD"):
        owner = record.parent.name.partition("-")[0]
        if owner.lower() == "drv_env":
            continue
        lines = record.read_text(encoding="utf-8", errors="replace").splitlines()
        theirs = sorted(taken & {line.partition(",")[0] for line in lines})
        if theirs:
            raise SystemExit(
                f"{owner} has {theirs[0]} in {installed} too, which drv-env would write over: use "
                "another environment, or install drv-env under names of its own with "
                "DRV_ENV_NAMES=inside (docs/design.md)"
            )


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildPy}, distclass=Named)
