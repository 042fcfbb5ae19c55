"""What ``make test-anywhere`` leaves out touches no floats."""

import ast
from pathlib import Path

import pytest

from tests.anywhere import PLACES, WITHOUT_FLOATS

TESTS = Path(__file__).parent
OWN_ENVIRONMENTS = {"adapters", "cluster"}  # run by make test-adapters and make test-cluster


@pytest.mark.parametrize("folder", sorted(set(WITHOUT_FLOATS) - OWN_ENVIRONMENTS))
def test_what_is_left_out_imports_no_torch(folder):
    files = sorted((TESTS / folder).rglob("*.py"))
    assert files
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [item.name for item in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            heavy = {name.split(".")[0] for name in names} & {"torch", "transformers"}
            assert not heavy, (file, heavy)


def test_the_places_are_every_processor_with_every_number_of_threads():
    found = {(place.capability, place.threads) for place in PLACES}
    assert found == {(kind, threads) for kind in ("default", "avx2") for threads in (1, 2)}
    assert any(place.noise for place in PLACES)
    assert any(place.everything and place.other_user for place in PLACES)
    assert len({place.hash_seed for place in PLACES}) == len(PLACES)
