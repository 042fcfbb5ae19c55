"""Which slot a request gets, and what of it is there already: by hand, without a model."""

import numpy as np
import pytest

from agents.engines._slots import Place, SlotTable

EIGHT = np.arange(1, 9, dtype=np.int32)


def ids(*values):
    return np.array(values, np.int32)


@pytest.fixture
def table():
    """Two slots, of which the first holds eight ids and is free again."""
    table = SlotTable(2, 16)
    assert table.place(EIGHT) == Place(0, 0, None, 0, 0)
    table.free(0)
    return table


def test_a_slot_goes_on_that_holds_half_of_it_or_more(table):
    assert table.common_prefixes(ids(1, 2, 3, 4, 20)).tolist() == [4, 0]
    assert table.place(ids(1, 2, 3, 4, 20)) == Place(0, 4, None, 4, 0)
    assert table.lengths.tolist() == [5, 0]


def test_a_slot_that_holds_much_else_is_copied_from(table):
    """Three of eight: it is left to those who want the rest; the copy waits for its ids."""
    assert table.place(ids(1, 2, 3, 20)) == Place(1, 0, 0, 3, 1)
    assert table.lengths.tolist() == [8, 4]


def test_what_was_computed_in_a_round_before_is_not_waited_for(table):
    table.begin_round()
    assert table.place(ids(1, 2, 3, 20)) == Place(1, 0, 0, 3, 0)


def test_a_busy_slot_is_copied_from_level_by_level():
    table = SlotTable(3, 16)
    assert table.place(EIGHT) == Place(0, 0, None, 0, 0)
    assert table.place(EIGHT) == Place(1, 0, 0, 8, 1)
    table.begin_round()
    assert table.place(ids(1, 2)) == Place(2, 0, 0, 2, 0)
    assert table.place(EIGHT) is None
    assert table.busy.all()


def test_the_least_recently_used_slot_makes_room(table):
    assert table.place(ids(30)) == Place(1, 0, None, 0, 0)
    table.free(1)
    assert table.place(ids(40)) == Place(0, 0, None, 0, 0)
    table.free(0)
    assert table.place(ids(50)) == Place(1, 0, None, 0, 0)


def test_ids_are_added_and_forgotten(table):
    assert table.place(EIGHT) == Place(0, 8, None, 8, 0)
    table.extend(np.array([0]), np.array([9]))
    assert table.common_prefixes(ids(*range(1, 12))).tolist() == [9, 0]
    table.free(0)
    table.clear()
    assert table.common_prefixes(EIGHT).tolist() == [0, 0]
    assert table.place(EIGHT) == Place(0, 0, None, 0, 0)
