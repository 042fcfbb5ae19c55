"""What a user installs: the four packages and nothing else, beside others of the same names."""

import os
import runpy
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TYPED = "py.typed"


def _left(folder: str, names: list[str]) -> set[str]:
    """What is no source: hidden and made files, and this folder's own output."""
    made = {"build", "dist", "runs"} if Path(folder) == ROOT else set()
    hidden = {name for name in names if name.startswith((".", "__pycache__"))}
    return made | hidden | {name for name in names if name.endswith(".egg-info")}


def build(folder: Path, **variables: str) -> Path:
    """The folder of an installed wheel, built from a copy of the sources."""
    arguments = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    # built from a copy: setuptools leaves build/ and metadata beside the sources
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=_left)
    subprocess.run(
        [sys.executable, "-m", "pip", *arguments, str(folder), str(source)],
        check=True,
        env={**os.environ, **variables},
    )
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "installed")
    return folder / "installed"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def inside(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("inside"), DRV_ENV_NAMES="inside")


def names_in(installed: Path) -> set[str]:
    files = (file for file in installed.rglob("*") if file.is_file())
    return {file.relative_to(installed).as_posix() for file in files}


def python(script: Path, *folders: Path) -> subprocess.CompletedProcess:
    """Run a script with these folders installed: -S leaves this project's own links out."""
    packages = [path for path in sys.path if path.endswith("site-packages")]
    places = [*map(str, folders), *packages]
    return subprocess.run(
        [sys.executable, "-S", str(script)],
        capture_output=True,
        text=True,
        cwd=script.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
    )


def test_the_wheel_holds_the_four_packages_and_nothing_else(wheel):
    names = names_in(wheel)
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"drv_env", "replay", "agents", "trainers"}
    assert {name for name in names if name.endswith(TYPED)} == {f"{top}/{TYPED}" for top in tops}
    assert any(name.endswith("LICENSE") for name in names)
    # others have packages of these names, whose __init__ is theirs
    assert not {"agents/__init__.py", "replay/__init__.py"} & names
    assert {"drv_env/__init__.py", "trainers/__init__.py", "agents/rollout.py"} <= names


def test_a_wheel_can_be_had_under_one_name_alone(wheel, inside):
    names = names_in(inside)
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"drv_env"}
    (metadata,) = inside.glob("*.dist-info")
    assert (metadata / "top_level.txt").read_text().split() == ["drv_env"]
    assert "drv = drv_env.trainers.cli:main" in (metadata / "entry_points.txt").read_text()
    ordinary = {name for name in names_in(wheel) if name.endswith(".py")}
    moved = {name.removeprefix("drv_env/") for name in names if name.endswith(".py")}
    added = {"agents/__init__.py", "replay/__init__.py"}
    assert moved == {name.removeprefix("drv_env/") for name in ordinary} | added


MINE = "print('mine was run')\nWHO = 'mine'\n"


def other_agents(folder: Path) -> Path:
    """Another distribution's package ``agents``, as openai-agents is laid out."""
    (folder / "agents").mkdir(parents=True)
    (folder / "agents" / "__init__.py").write_text("from agents.agent import Agent\n")
    (folder / "agents" / "agent.py").write_text("class Agent: pass\n")
    record = folder / "other_agents-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: other-agents\nVersion: 1.0\n")
    (record / "RECORD").write_text("agents/__init__.py,,\nagents/agent.py,,\n")
    return folder


def test_another_package_agents_and_ours_work_side_by_side(wheel, tmp_path):
    together = tmp_path / "site"
    other_agents(together)
    ours = names_in(wheel)
    assert not ours & names_in(together)  # nothing is written over, in either order
    shutil.copytree(wheel, together, dirs_exist_ok=True)
    script = tmp_path / "both.py"
    script.write_text(
        "from agents import Agent\n"
        "from agents.rollout import rollout\n"
        "from agents.engines import Sampling\n"
        "from replay.trajectory import Trajectory\n"
        "from trainers.cli import main\n"
        "from trainers.commands.doctor import examine\n"
        "print(Agent.__module__, rollout.__module__, main(['version']))\n"
        "found = {each.subject: each for each in examine()}['agents']\n"
        "print(found.state, found.detail.partition(', ')[2])\n"
    )
    done = python(script, together)
    assert done.stderr == ""
    assert "agents.agent agents.rollout 0\nok beside other-agents: both work\n" in done.stdout


def test_a_wheel_under_one_name_leaves_all_others_alone(inside, tmp_path):
    (tmp_path / "script").mkdir()
    script = tmp_path / "script" / "uses.py"
    for name in ("agents", "replay", "trainers"):
        (script.parent / f"{name}.py").write_text("WHO = 'mine'\n")
    script.write_text(
        "import agents, replay, trainers\n"
        "from drv_env.agents.rollout import rollout\n"
        "from drv_env.trainers.cli import main\n"
        "from drv_env.replay.template import ChatTemplate\n"
        "assert main(['ask', 'who?', '--model', 'nowhere']) == 1\n"
        "try: main(['train', 'igpo', '--help'])\n"
        "except SystemExit: pass\n"
        "print(agents.WHO, replay.WHO, trainers.WHO, rollout.__module__)\n"
    )
    done = python(script, inside)
    assert done.stderr.startswith("drv: --model nowhere: no such folder with a model"), done.stderr
    assert done.stdout.endswith("mine mine mine drv_env.agents.rollout\n")


@pytest.mark.parametrize(
    ("file", "uses", "name"),
    [
        ("replay.py", "from agents.rollout import rollout", "replay"),
        ("replay.py", "import drv_env, trainers.rl_config", "replay"),
        ("agents.py", "from trainers.rl_config import RLConfig", "agents"),
        ("agents/__init__.py", "import drv_env; import agents.rollout", "agents"),
        ("trainers/__init__.py", "import drv_env; from trainers.sft import train_sft", "trainers"),
    ],
)
def test_a_script_beside_a_file_of_our_name_is_told_so(wheel, tmp_path, file, uses, name):
    beside = tmp_path / file
    beside.parent.mkdir(exist_ok=True)
    beside.write_text(MINE if beside.name != "__init__.py" else "")
    script = tmp_path / "uses.py"
    script.write_text(uses + "\n")
    done = python(script, wheel)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"drv_env.own_names.NameTaken: {name} is {beside.parent}"), done.stderr
    assert "rename" in last
    assert "DRV_ENV_NAMES=inside" in last
    assert "mine was run" not in done.stdout


def test_who_needs_the_environment_alone_keeps_the_names(wheel, tmp_path):
    for name in ("agents", "replay", "trainers"):
        (tmp_path / f"{name}.py").write_text("WHO = 'mine'\n")
    script = tmp_path / "uses.py"
    script.write_text(
        "import drv_env, agents, replay, trainers\n"
        "from drv_env.env import DeepResearchEnv\n"
        "from drv_env.testing import FakeTools\n"
        "env = DeepResearchEnv([('Who?', 'Ada')], FakeTools())\n"
        "print(env.reset(seed=0)[0], agents.WHO, replay.WHO, trainers.WHO)\n"
    )
    done = python(script, wheel)
    assert done.stdout == "Who? mine mine mine\n", done.stderr


def test_installing_refuses_to_write_over_anothers_file(tmp_path):
    refuse = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")["refuse_taken"]
    other = other_agents(tmp_path)
    refuse(other)  # an __init__ of ours is not installed
    (other / "other_agents-1.0.dist-info" / "RECORD").write_text("agents/rollout.py,,\n")
    with pytest.raises(SystemExit, match=r"other_agents has agents/rollout\.py in .*too, which"):
        refuse(other)
    (other / "other_agents-1.0.dist-info").rename(other / "drv_env-0.0.1.dist-info")
    refuse(other)  # an earlier version of ours


def test_importing_the_environment_brings_no_torch():
    code = (
        "import sys, drv_env, drv_env.testing, replay.store, replay.template\n"
        "import agents.rollout, agents.vector_rollout, agents.engines.openai_ids\n"
        "heavy = {'torch', 'transformers', 'vllm', 'ray'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


BOTH = (
    "from agents import Agent, Runner; from agents.rollout import rollout; import drv_env;"
    "from replay.trajectory import Trajectory; print('both work')"
)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["theirs", "ours"])
def test_the_real_openai_agents_and_ours_in_one_environment(first, tmp_path):
    """Needs the package index; both orders of installing, and uninstalling ours."""
    venv.create(tmp_path / "venv", with_pip=True)
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=_left)
    own = tmp_path / "venv" / "bin" / "python"

    def run(*arguments: str) -> str:
        # from elsewhere, and without what the tests' own environment says of paths
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [own, *arguments], capture_output=True, text=True, cwd=tmp_path, env=clean
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    packages = ["openai-agents", str(source)]
    for package in packages if first == "theirs" else reversed(packages):
        run("-m", "pip", "install", "--quiet", package)
    assert run("-c", BOTH) == "both work\n"
    assert "beside openai-agents" in run(
        "-c",
        "from trainers.commands.doctor import examine;"
        "print([e.detail for e in examine() if e.subject == 'agents' and e.state == 'ok'])",
    )
    run("-m", "pip", "uninstall", "--quiet", "--yes", "drv-env")
    assert run("-c", "from agents import Agent, Runner; print(Agent.__name__)") == "Agent\n"
