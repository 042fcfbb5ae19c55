"""What a user installs: the four packages and nothing else."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_wheel_holds_the_four_packages_and_nothing_else(tmp_path):
    arguments = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    # built from a copy: setuptools leaves build/ and metadata beside the sources
    source = tmp_path / "source"
    left = shutil.ignore_patterns(".*", "build", "dist", "runs", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT, source, ignore=left)
    subprocess.run(
        [sys.executable, "-m", "pip", *arguments, str(tmp_path), str(source)], check=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"drv_env", "replay", "agents", "trainers"}
    assert {name for name in names if name.endswith("py.typed")} == {
        f"{package}/py.typed" for package in tops
    }
    assert any(name.endswith("LICENSE") for name in names)


def test_importing_the_environment_brings_no_torch():
    code = (
        "import sys, drv_env, drv_env.testing, replay.store, replay.template\n"
        "import agents.rollout, agents.vector_rollout, agents.engines.openai_ids\n"
        "heavy = {'torch', 'transformers', 'vllm', 'ray'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
