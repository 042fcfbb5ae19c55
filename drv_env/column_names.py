"""Finding a column by its name as people write it: ``Final answer`` is ``final_answer``.

Letters count in either case; blanks, underscores and hyphens don't count.  A name with dots
reaches into nested columns.  A column with exactly the name goes before one that is alike.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

_FILLING = re.compile(r"[\s_\-]+")


@lru_cache(4096)
def folded(name: str) -> str:
    """The name without what doesn't count.

    Example:
        >>> folded("Final answer"), folded("correct_Answer")
        ('finalanswer', 'correctanswer')
    """
    return _FILLING.sub("", name).casefold()


def like(name: str, columns: Iterable[Any]) -> str | None:
    """The first of the columns that is called so, or None.

    Example:
        >>> like("final_answer", ["Question", "Final answer"])
        'Final answer'
    """
    wanted = folded(name)
    for column in columns:
        if isinstance(column, str) and folded(column) == wanted:
            return column
    return None


def find(row: Mapping[str, Any], name: str) -> tuple[str, Any] | None:
    """The column's name in the row, with dots where it is nested, and its value; or None.

    Example:
        >>> find({"Reward_Model": {"ground_truth": "A"}}, "reward_model.ground_truth")
        ('Reward_Model.ground_truth', 'A')
    """
    column = name if name in row else like(name, row)
    if column is not None:
        return column, row[column]
    first, dot, rest = name.partition(".")
    if not dot:
        return None
    column = first if first in row else like(first, row)
    inner = None if column is None else row[column]
    if not isinstance(inner, Mapping):
        return None
    found = find(inner, rest)
    return None if found is None else (f"{column}.{found[0]}", found[1])


def has_column(names: Collection[str], name: str) -> bool:
    """Whether one of the names, nested ones with dots, is the column's."""
    return name in names or like(name, names) is not None
