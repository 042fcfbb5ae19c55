"""Every record of settings refuses what can't be, by name, when it is made."""

from __future__ import annotations

import dataclasses
import importlib
import math
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from drv_env.errors import SettingError

PACKAGES = ("drv_env", "replay", "agents", "trainers")
NEEDED: dict[str, dict[str, Any]] = {
    "WorldRecipe": {"seed": 0},
    "Curriculum": {"steps": 1},
    "Sampling": {"max_tokens": 1},
    "CorrectnessFilter": {"name": "exact", "outcome": lambda answer, task: 1.0},
    "CleanJob": {"inputs": (Path("in"),), "out": Path("out")},
    "FineTuning": {"config": None, "rows": Path("rows")},
}
"""What a record can't be made without."""

NOT_WHOLE = (math.nan, 1.5, True, "5", math.inf, -math.inf, [1], 10**5000, -(10**30))
NO_NUMBER = (math.nan, True, "5", -math.inf, [1.0], 1j, 10**5000)


def _records() -> Iterator[type]:
    """The classes whose ``__post_init__`` checks their fields."""
    for package in PACKAGES:
        home = importlib.import_module(package)
        for found in pkgutil.walk_packages(home.__path__, f"{package}."):
            if ".openrlhf.inside" in found.name or found.name.endswith("__main__"):
                continue
            source = Path(found.module_finder.path, f"{found.name.rpartition('.')[2]}.py")  # type: ignore[union-attr]
            if not source.is_file() or "check_fields(" not in source.read_text("utf-8"):
                continue
            module = importlib.import_module(found.name)
            for kind in vars(module).values():
                own = isinstance(kind, type) and kind.__module__ == module.__name__
                after = vars(kind).get("__post_init__") if own else None
                if after is not None and "check_fields" in after.__code__.co_names:
                    yield kind


RECORDS = tuple(_records())


def _fields(kind: type, wanted: type) -> Iterator[str]:
    hints = get_type_hints(kind)
    for each in dataclasses.fields(kind):
        hint = hints[each.name]
        choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if wanted in choices and str not in choices:
            yield each.name


def _make(kind: type, /, **settings: Any) -> Any:
    return kind(**{**NEEDED.get(kind.__name__, {}), **settings})


def test_the_records_are_all_here() -> None:
    names = {kind.__name__ for kind in RECORDS}
    assert names >= {
        "Rules", "RetryPolicy", "WorldRecipe", "Noise", "Curriculum", "Sampling",
        "RolloutSettings", "RobustSampling", "CleanRules", "CleanJob", "CorrectnessFilter",
        "Resampling", "RowSettings", "Credit", "LossSettings", "LoRASettings", "SFTConfig",
        "RLConfig", "TinySize", "CopyConfig", "DemoConfig", "WorldSettings", "Cluster", "GameSpec",
        "EngineSection", "EvaluationSection", "CheckpointSection", "DataSection", "LoRASection",
    }  # fmt: skip


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_what_is_no_whole_number_is_refused_by_name(kind: type) -> None:
    for name in _fields(kind, int):
        for value in NOT_WHOLE:
            with pytest.raises(SettingError, match=rf"\b{name}\b"):
                _make(kind, **{name: value})


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_what_is_no_number_is_refused_by_name(kind: type) -> None:
    for name in _fields(kind, float):
        for value in NO_NUMBER:
            with pytest.raises(SettingError, match=rf"\b{name}\b"):
                _make(kind, **{name: value})


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_flags_and_choices_are_no_other_values(kind: type) -> None:
    hints = get_type_hints(kind)
    for each in dataclasses.fields(kind):
        if hints[each.name] is bool or get_origin(hints[each.name]) is Literal:
            for value in ("no", 2.5, None, [1]):
                with pytest.raises(SettingError, match=rf"\b{each.name}\b"):
                    _make(kind, **{each.name: value})


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_seeds_are_whole_numbers_of_63_bits(kind: type) -> None:
    if "seed" not in {each.name for each in dataclasses.fields(kind)}:
        return
    assert _make(kind, seed=2**63 - 1).seed == 2**63 - 1
    for seed in (-1, 2**63, 2**64, 10**400):
        with pytest.raises(SettingError, match="seed must be"):
            _make(kind, seed=seed)


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_numpy_numbers_count_and_become_plain(kind: type) -> None:
    made = _make(kind)
    for name in _fields(kind, int):
        value = getattr(made, name)
        if value is not None:
            again = _make(kind, **{name: np.int64(value)})
            assert again == made
            assert type(getattr(again, name)) is int
    for name in _fields(kind, float):
        value = getattr(made, name)
        if value is not None:
            again = _make(kind, **{name: np.float64(value)})
            assert type(getattr(again, name)) is float


def test_the_message_names_setting_and_value() -> None:
    from agents.rollout import RolloutSettings
    from drv_env.episode import Rules
    from trainers.sft import SFTConfig

    for make, said in (
        (lambda: Rules(max_turns=math.nan), "max_turns must be a whole number, got nan"),  # type: ignore[arg-type]
        (lambda: Rules(max_turns=1.5), "max_turns must be a whole number, got 1.5"),  # type: ignore[arg-type]
        (lambda: Rules(max_turns=True), "max_turns must be a whole number, got True"),
        (lambda: Rules(max_turns="5"), "max_turns must be a whole number, got '5'"),  # type: ignore[arg-type]
        (lambda: Rules(max_turns=-3), "max_turns must be at least 1, got -3"),
        (lambda: Rules(max_seconds=math.inf), "max_seconds must be above 0 and finite, got inf"),
        (lambda: RolloutSettings(turn_timeout=math.nan), "turn_timeout must be a number, got nan"),
        (lambda: SFTConfig(learning_rate="1e-3"), "learning_rate must be a number, got '1e-3'"),  # type: ignore[arg-type]
    ):
        with pytest.raises(SettingError) as caught:
            make()
        assert str(caught.value) == said


def test_no_limit_on_a_norm_may_be_written_as_infinity() -> None:
    from trainers.rl_config import RLConfig
    from trainers.sft import SFTConfig

    assert SFTConfig(max_grad_norm=math.inf).max_grad_norm == math.inf
    assert RLConfig(max_grad_norm=math.inf).max_grad_norm == math.inf
