"""What a run on OpenRLHF needs and this machine lacks: packages, and keys of tools and judge."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from drv_env.errors import SettingError
from drv_env.tools.live import LiveTools
from trainers.openrlhf.flags import counted, given_flags
from trainers.openrlhf.run import GameSpec, OpenRLHFRun
from trainers.plugins import outcome_of

_EXTRA = "pip install 'drv-env[openrlhf,vllm]'"
_ALWAYS: Mapping[str, str] = {
    "openrlhf": _EXTRA,
    "deepspeed": _EXTRA,
    "flash_attn": "pip install flash-attn --no-build-isolation",
}
_PLAYING: Mapping[str, str] = {"ray": _EXTRA, "vllm": _EXTRA}
_IN_PIECES: Mapping[str, str] = {"ring_flash_attn": "pip install ring-flash-attn"}


def lacking(run: OpenRLHFRun) -> list[str]:
    """A line for each thing; the machines that a plan is for may have what this one lacks."""
    needed = dict(_ALWAYS)
    keys: list[str] = []
    if run.reinforcement is not None:
        needed |= _PLAYING
        keys = lacking_keys(run.reinforcement.game)
    if counted(given_flags(run.cluster.flags), "ds.ring_attn_size") > 1:
        needed |= _IN_PIECES
    packages = [f"{name} isn't installed: {how}" for name, how in needed.items() if _lacks(name)]
    return [*packages, *keys]


def lacking_keys(game: GameSpec) -> list[str]:
    """A line for each service that the game asks and the environment has no key or name of."""
    services: list[Callable[[], Any]] = []
    if game.tools == "live" and not game.cassette_only:
        services.append(LiveTools.from_env)
    services.append(lambda: outcome_of(game.outcome))
    found = []
    for make in services:
        try:
            make()  # nothing is opened before its first question
        except SettingError as error:
            found.append(str(error))
    return found


def refuse_lacking_keys(run: OpenRLHFRun) -> None:
    """Refuse a run whose own Ray would have no keys; a cluster's nodes have theirs.

    Raises:
        SettingError: naming all that is missing.
    """
    elsewhere = "RAY_ADDRESS" in os.environ or "address" in run.cluster.ray
    missing = [] if elsewhere else lacking_keys(run.rl.game)
    if missing:
        raise SettingError("; ".join(missing))


def _lacks(package: str) -> bool:
    return package not in sys.modules and importlib.util.find_spec(package) is None
