"""A judge's reply → its verdict: right, wrong, or unreadable.  Pure functions of text.

The grammar, all of it (letter case never matters):

* Thoughts do not count: everything up to the last ``</think>`` is dropped.  A reply that
  ends inside a thought is unreadable.
* A verdict stands on a line of its own, or in a JSON object on lines of its own:

  ========  =======================================================================
  line      ``correct`` ``:`` value, then nothing, or punctuation and a remark;
            around the two words Markdown's ``* _ ` #`` and a list's ``-`` may stand
  object    ``{… "correct": value …}``, from the first line that begins with ``{`` to
            the last that ends with ``}``; true and false, or a string that reads as a
            value; a code fence around it may stand
  value     ``yes``, ``no``, ``true``, ``false``
  remark    any words, unless one of its clauses ends with the opposite value
            (``no, or rather yes``)
  ========  =======================================================================

  ``correct: yes`` in the middle of a line is the judge thinking aloud, or quoting.
* The last verdict of the reply counts.  The reply is unreadable when the last one has no
  value (``correct: unsure``), when an earlier one says the opposite, when an object is
  begun and not finished, and when there is none.

Time is linear in the text, and nothing raises.
"""

from __future__ import annotations

import json
import re
from typing import Any

_THOUGHT = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_MARKS = r"[\s*_`]*"
_LINE = re.compile(rf"[\s*_`#-]*correct{_MARKS}[:：](.*)", re.IGNORECASE)
_FACT_LINE = re.compile(rf"[\s*_`#-]*fact\s+(\d{{1,6}}){_MARKS}[:：](.*)", re.IGNORECASE)
_VALUE = re.compile(
    rf"{_MARKS}[\"']?(yes|no|true|false)[\"']?[*_`]*(?:\s*$|\s*[.,;:!(，。；：！（]|\s[—–-])(.*)",
    re.IGNORECASE | re.DOTALL,
)
_CLAUSE_END = re.compile(r"\b(yes|no|true|false)\b[\s*_`\"']*(?:[.,;!?)]|$)", re.IGNORECASE)
_MEANS = {"yes": True, "true": True, "no": False, "false": False}


def read_verdict(reply: str) -> bool | None:
    """The verdict of a judge's reply; None where it can't be read.

    None is never to be counted as wrong: ask again.

    Example:
        >>> read_verdict("The spelling differs, the person is the same.\\n**Correct:** Yes")
        True
        >>> read_verdict('{"reason": "another year", "correct": false}')
        False
        >>> read_verdict("correct: yes/no") is None
        True
    """
    parts = _parts(reply)
    if parts is None:
        return None
    before, pairs, after = parts
    found = [_value(match[1]) for match in map(_LINE.match, before) if match]
    found += [_value(value) for key, value in pairs if key.lower() == "correct"]
    found += [_value(match[1]) for match in map(_LINE.match, after) if match]
    return _agreed(found)


def read_verdicts(reply: str, count: int) -> tuple[bool, ...] | None:
    """Several verdicts, one for each of some numbered facts; None unless all are there.

    The grammar is that of :func:`read_verdict`, with a line ``fact N: value`` for each
    fact, or an object with ``"facts"``, a list of values in the facts' order.

    Args:
        reply: the judge's reply.
        count: number of facts; they are numbered from 1.

    Example:
        >>> read_verdicts("fact 1: yes\\nfact 2: no", 2)
        (True, False)
        >>> read_verdicts('{"facts": [true, "no"]}', 2)
        (True, False)
        >>> read_verdicts("fact 1: yes", 2) is None
        True
    """
    parts = _parts(reply)
    if parts is None:
        return None
    before, pairs, after = parts
    found: list[list[bool | None]] = [[] for _ in range(count)]
    for match in map(_FACT_LINE.match, (*before, *after)):
        if match:
            number = int(match[1])
            if not 1 <= number <= count:
                return None
            found[number - 1].append(_value(match[2]))
    for key, values in pairs:
        if key.lower() == "facts":
            if not isinstance(values, list) or len(values) != count:
                return None
            for place, value in zip(found, values, strict=True):
                place.append(_value(value))
    verdicts = [verdict for verdict in map(_agreed, found) if verdict is not None]
    return tuple(verdicts) if len(verdicts) == count else None


def _parts(reply: str) -> tuple[list[str], list[tuple[str, Any]], list[str]] | None:
    """Lines before the object, its pairs, lines after it; thoughts dropped.

    None for a reply that ends inside a thought, and for an object that can't be read.
    """
    tags = list(_THOUGHT.finditer(reply))
    if tags and not tags[-1][1]:
        return None
    lines = reply[tags[-1].end() if tags else 0 :].splitlines()
    first = next((at for at, line in enumerate(lines) if _bare(line).startswith("{")), None)
    if first is None:
        return lines, [], []
    last = next((at for at in reversed(range(len(lines))) if _bare(lines[at]).endswith("}")), -1)
    try:
        text = _bare("\n".join(lines[first : last + 1]))
        pairs = json.loads(text, strict=False, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return None
    return lines[:first], pairs, lines[last + 1 :]


def _bare(text: str) -> str:
    """Without white space and a code fence around it."""
    return text.strip("` \t\n").removeprefix("json").lstrip()


def _value(written: Any) -> bool | None:
    if isinstance(written, bool):
        return written
    match = _VALUE.match(written) if isinstance(written, str) else None
    if match is None:
        return None
    value = _MEANS[match[1].lower()]
    ended_with = (_MEANS[word.lower()] for word in _CLAUSE_END.findall(match[2]))
    return None if (not value) in ended_with else value


def _agreed(values: list[bool | None]) -> bool | None:
    """The last value, unless it is None or an earlier one is its opposite."""
    if not values or values[-1] is None or (not values[-1]) in values:
        return None
    return values[-1]
