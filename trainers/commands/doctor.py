"""``drv doctor``: what is installed, what stands in the way, and what to do about it.

Nothing heavy is imported: packages are looked up, not loaded.  Keys are named, never
shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trainers.extras import PACKAGES, distribution_of, remedy_for

if TYPE_CHECKING:
    from pathlib import Path

State = Literal["ok", "missing", "broken"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        subject: what it is.
        state: ``ok``, ``missing`` (an option that is not there) or ``broken``.
        detail: what was found.
        remedy: what to do; empty where nothing is needed.
    """

    subject: str
    state: State
    detail: str
    remedy: str = ""


@dataclass(frozen=True)
class Doctor:
    """Say what is installed, what shadows it, which keys are set, and what to do."""

    endpoints: bool = False
    """Also ask the summariser's and the judge's endpoints whether they answer."""

    def run(self) -> None:
        """Print a table; exits with 1 when something is broken."""
        import sys

        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        findings = list(examine(self.endpoints))
        table = Table(title="drv doctor")
        for name in ("what", "state", "found", "what to do"):
            table.add_column(name)
        styles = {"ok": "green", "missing": "yellow", "broken": "bold red"}
        for finding in findings:
            state = Text(finding.state, style=styles[finding.state])
            table.add_row(Text(finding.subject), state, Text(finding.detail), Text(finding.remedy))
        Console().print(table)
        if any(finding.state == "broken" for finding in findings):
            sys.exit(1)


def examine(endpoints: bool = False) -> Iterator[Finding]:
    """Everything that can be said without loading anything heavy.

    Args:
        endpoints: also ask the endpoints that are set.
    """
    yield from _packages()
    yield from _shadows()
    yield from _devices()
    yield from _architectures()
    yield from _keys()
    if endpoints:
        from drv_env import background

        yield from background.run(_answers())


def _packages() -> Iterator[Finding]:
    import platform
    from importlib import metadata, util

    yield Finding("Python", "ok", platform.python_version())
    for extra, modules in PACKAGES.items():
        for module in modules:
            if util.find_spec(module) is not None:
                try:
                    version = metadata.version(distribution_of(module))
                except metadata.PackageNotFoundError:
                    version = "found, of unknown version"
                yield Finding(module, "ok", version)
                continue
            state: State = "missing" if extra else "broken"
            yield Finding(module, state, "not installed", remedy_for(extra))


def _shadows() -> Iterator[Finding]:
    """Whether Python finds our packages under their names, and who else has one of them."""
    from pathlib import Path

    from drv_env.own_names import WITNESSES, owners, place_of_other

    home = Path(__file__).resolve().parents[2]
    for name in ("drv_env", *WITNESSES):
        others = owners(name)
        place = place_of_other(name)
        if place is not None:
            yield Finding(
                name,
                "broken",
                f"imported from {place}, not from {home}",
                "uninstall or rename what shadows it, or use names of its own "
                "(DRV_ENV_NAMES=inside, docs/design.md)"
                + (f": pip uninstall {' '.join(others)}" if others else ""),
            )
        elif others:
            yield Finding(name, "ok", f"{home / name}, beside {', '.join(others)}: both work")
        else:
            yield Finding(name, "ok", str(home / name))
    yield from _beside_scripts(home)


def _beside_scripts(home: Path) -> Iterator[Finding]:
    """Files in this folder that a script beside them would import in place of our packages."""
    from pathlib import Path

    from drv_env.own_names import WITNESSES

    here = Path.cwd()
    for name in ("drv_env", *WITNESSES):
        for file in (here / f"{name}.py", here / name / "__init__.py"):
            if file.is_file() and here.resolve() != home:
                yield Finding(
                    str(file.relative_to(here)),
                    "broken",
                    f"a script in this folder imports it where drv-env's {name} is meant",
                    "rename it, or use names of its own (DRV_ENV_NAMES=inside, docs/design.md)",
                )


def _devices() -> Iterator[Finding]:
    import os
    from pathlib import Path

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("CPU cores", "ok", str(cores))
    if Path("/proc/driver/nvidia/version").exists():
        yield Finding("NVIDIA driver", "ok", "present")
    else:
        remedy = "none needed for the demo and the tests"
        yield Finding("NVIDIA driver", "missing", "no GPU to be seen", remedy)


def _architectures() -> Iterator[Finding]:
    """Model types of a config.json; tests compare each with Transformers' own loss."""
    from trainers.architectures import FULL_ATTENTION, NOT_PACKED, OTHER_ATTENTION

    for subject, names, remedy in (
        ("models, all uses", FULL_ATTENTION, "with a sliding window they are as the last row"),
        ("models, not packed", NOT_PACKED, "leave sft.packed and rl.packed false"),
        (
            "models with windows or states",
            OTHER_ATTENTION,
            "not packed; for reinforcement set engine.kind to vllm and rl.scoring to plain",
        ),
    ):
        yield Finding(subject, "ok", ", ".join(sorted(names)), remedy)


def _keys() -> Iterator[Finding]:
    from drv_env.errors import SettingError
    from drv_env.secrets import Keys

    file = _env_file()
    yield file
    if file.state == "broken":  # and so are the keys
        return
    try:
        keys = Keys.from_env()
    except SettingError as error:
        yield Finding("keys", "broken", str(error), "see .env.example")
        return
    where = "set it in the environment or in .env"
    own = "where its endpoint asks for one"
    wanted = {
        "SERPER_KEY_ID": (keys.serper, f"{where} for live search"),
        "JINA_API_KEYS": (keys.jina, f"{where} for reading pages through Jina"),
        "API_BASE": (keys.api_base, f"{where} for the summariser"),
        "API_KEY": (keys.api_key, f"{where} for the summariser, {own}"),
        "SUMMARY_MODEL_NAME": (keys.summary_model, f"{where} for the summariser"),
        "JUDGE_MODEL_NAME": (keys.judge_model, f"{where} for the judge"),
        "JUDGE_API_BASE or API_BASE": (keys.judge_base, f"{where} for the judge"),
        "JUDGE_API_KEY": (keys.judge_key, f"{where} for the judge, {own}"),
        "PROXY": (keys.proxy, f"{where} where search and pages need a proxy"),
    }
    for name, (value, remedy) in wanted.items():
        if value:
            yield Finding(name, "ok", "set")
        else:
            yield Finding(name, "missing", "not set", remedy)
    yield from _other_proxies(bool(keys.proxy))


def _env_file() -> Finding:
    """The file .env of the working folder, and how it is written."""
    from pathlib import Path

    from drv_env.charsets import unicode_encoding
    from drv_env.env_file import read_env_file
    from drv_env.errors import SettingError

    file = Path(".env")
    if file.is_dir():
        return Finding(".env", "missing", "a folder of this name, which is passed over")
    try:
        names = len(read_env_file(file))
        if not file.exists():
            return Finding(".env", "missing", "no such file here", "see .env.example")
        encoding = unicode_encoding(file.read_bytes())[0]
    except (SettingError, OSError) as error:
        return Finding(".env", "broken", str(error), "save it as UTF-8; see .env.example")
    return Finding(".env", "ok", f"{names:,} names, {encoding}")


def _other_proxies(own: bool) -> Iterator[Finding]:
    """Variables that other programs take a proxy from, and we do not."""
    import os

    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    found = [name for each in names for name in (each, each.lower()) if os.environ.get(name)]
    if found:
        remedy = "" if own else "set PROXY, where search and pages are to use it"
        detail = "set; search and pages go by PROXY alone"
        yield Finding(" and ".join(found), "ok" if own else "missing", detail, remedy)


async def _answers() -> list[Finding]:
    from drv_env.errors import SettingError, ToolError
    from drv_env.http import HttpClient
    from drv_env.secrets import Keys

    found: list[Finding] = []
    try:
        keys = Keys.from_env()
    except SettingError:  # said already
        return found
    http = HttpClient(proxy=keys.proxy)
    try:
        for name, base, key in (
            ("summariser", keys.api_base, keys.api_key),
            ("judge", keys.judge_base, keys.judge_key),
        ):
            if base is None:
                continue
            headers = {} if key is None else {"Authorization": f"Bearer {key.reveal()}"}
            try:
                reply = await http.request(
                    "GET",
                    base.rstrip("/") + "/models",
                    headers=headers,
                    timeout=10.0,
                    raise_for_status=False,
                )
            except ToolError as error:
                remedy = "check the address, the key and whether the server runs"
                found.append(Finding(f"endpoint of the {name}", "broken", str(error), remedy))
                continue
            if reply.status < 400:
                found.append(Finding(f"endpoint of the {name}", "ok", "answers"))
            else:
                remedy = "check the key" if reply.status in (401, 403) else "check the address"
                detail = f"answers HTTP {reply.status}"
                found.append(Finding(f"endpoint of the {name}", "broken", detail, remedy))
    finally:
        await http.close()
    return found
