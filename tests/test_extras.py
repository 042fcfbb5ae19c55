"""Without an extra: help all the same and at once, and one line from whatever needs it."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import drv_env
from trainers.cli import main
from trainers.extras import PACKAGES, distribution_of, lacking

ROOT = Path(__file__).parents[1]

HEAVY = ("torch", "transformers", "pydantic", "tensorboard", "vllm", "ray", "pyarrow.parquet")
"""What takes a good part of a second to import."""

BLOCKED = """
import contextlib, io, json, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

BLOCKED = set(json.loads(sys.argv[1]))
sys.meta_path.insert(0, Blocker())
from trainers.cli import main

def run(arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as stopped:
            code = stopped.code
    return [code, out.getvalue(), err.getvalue()]

found = [run(each) for each in json.loads(sys.argv[2])]
print(json.dumps([found, sorted(sys.modules)]))
"""

HELPS = [
    *(["--help"], ["demo", "--help"], ["ask", "--help"], ["eval", "--help"], ["rollout", "--help"]),
    *(["train", "--help"], ["train", "sft", "--help"], ["train", "grpo", "--help"]),
    *(
        ["train", "igpo", "--help"],
        ["doctor", "--help"],
        ["judge", "--help"],
        ["version", "--help"],
    ),
    *(["data", "--help"], ["cassette", "--help"]),
    *(
        ["data", name, "--help"]
        for name in ("clean", "report", "rows", "show", "stats", "convert", "web", "replay-check")
    ),
    *(["cassette", name, "--help"] for name in ("stats", "merge", "export")),
]


def played(commands, without=(), folder=ROOT):
    """What each command gave in one process without some packages, and what was imported."""
    arguments = [json.dumps(list(without)), json.dumps(commands)]
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_help_needs_no_extra_and_imports_nothing_heavy():
    without = {name for extra, names in PACKAGES.items() if extra for name in names}
    results, modules = played([*HELPS, ["--version"]], without)
    for command, (code, out, err) in zip([*HELPS, ["--version"]], results, strict=True):
        assert code == 0, (command, err)
        assert out, command
        assert err == "", command
    assert results[-1][1] == f"{drv_env.__version__}\n"
    assert "learning-rate" in results[HELPS.index(["train", "igpo", "--help"])][1]
    assert not set(HEAVY) & set(modules)


def test_what_needs_an_extra_says_so_in_one_line(tmp_path):
    (tmp_path / "run.yaml").write_text("model:\n  folder: nowhere\n")
    commands = [
        ["demo", "--out", "out"],
        ["train", "sft", "--model.folder", "nowhere"],
        ["train", "igpo", "--config", "run.yaml", "--plan"],
        ["train", "igpo", "--preset", "paper-rl", "--plan"],
    ]
    helping = [*commands[2][:-1], "--help"]
    results, _ = played([*commands, helping], PACKAGES["train"], tmp_path)
    for command, (code, out, err) in zip(commands, results, strict=False):
        assert (code, out) == (1, ""), command
        (line,) = err.splitlines()
        assert line.startswith("drv: this needs "), command
        assert line.endswith(", which is not installed: pip install 'drv-env[train]'"), command
    code, out, err = results[-1]  # help, with the trainer's own values
    assert code == 0
    assert "--rl.learning-rate" in out
    assert len(err.splitlines()) == 1
    assert "not shown" in err


def test_a_package_of_the_base_that_is_gone_is_one_line():
    ((code, _, err),), _ = played([["data", "stats", "x.parquet"]], ["gymnasium"])
    assert code == 1
    assert err == "drv: this needs gymnasium, which is not installed: pip install drv-env\n"


def test_a_missing_module_that_no_extra_brings_stays_an_error():
    assert lacking(ModuleNotFoundError("No module named 'mine'", name="mine")) is None
    assert lacking(ImportError("cannot import name 'x' from 'torch'", name="torch")) is None


def test_the_table_of_packages_is_what_the_project_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {"": project["dependencies"], **project["optional-dependencies"]}
    for extra, modules in PACKAGES.items():
        asked = {
            requirement.split(";")[0].strip(" ").split("[")[0].split(">")[0].split("=")[0]
            for requirement in wanted[extra]
            if not requirement.startswith("drv-env")
        }
        assert {distribution_of(name).replace("-", "_") for name in modules} == {
            name.replace("-", "_") for name in asked
        }, extra


def test_the_version_stands_in_one_place(capsys):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    dynamic = project["tool"]["setuptools"]["dynamic"]["version"]
    assert dynamic == {"attr": "drv_env.__version__"}
    for spelling in (["--version"], ["-V"], ["version"]):
        assert main(spelling) == 0
        assert capsys.readouterr().out == f"{drv_env.__version__}\n"
