"""A trajectory as the one thing that OpenRLHF carries from a rollout to the trainer: integers.

Of what an agent executor returns, the trainer sees ids, log-probs, the reward and a
dictionary of numbers.  A whole trajectory goes through as one list of 64-bit integers: a
stream of Arrow's format of :data:`replay.schema.SCHEMA`, compressed, with its length before.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from replay.schema import SCHEMA, from_row, to_row
from replay.trajectory import Trajectory

KEY = "drv_episode"
"""Its name in the dictionary (``extra_logs``, then ``info``)."""

_WORD = 8


def pack(trajectory: Trajectory) -> list[int]:
    """The trajectory in integers.

    Example:
        >>> from drv_env.episode import Ending
        >>> from drv_env.tasks import Task
        >>> broken = Trajectory(Task("Who?", ("Ada",)), (), (), (), Ending.BROKEN, error="lost")
        >>> unpack(pack(broken)) == broken
        True
    """
    table = pa.Table.from_pylist([to_row(trajectory)], schema=SCHEMA)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, SCHEMA, options=options) as stream:
        stream.write_table(table)
    data = sink.getvalue().to_pybytes()
    framed = len(data).to_bytes(_WORD, "little") + data + bytes(-len(data) % _WORD)
    words: list[int] = np.frombuffer(framed, "<i8").tolist()
    return words


def unpack(words: ArrayLike) -> Trajectory:
    """The trajectory of :func:`pack`; zeros behind it don't matter.

    Its transcript has no template, and so can't grow.
    """
    framed = np.asarray(words, "<i8").reshape(-1).tobytes()
    length = int.from_bytes(framed[:_WORD], "little")
    with pa.ipc.open_stream(framed[_WORD : _WORD + length]) as stream:
        (row,) = stream.read_all().to_pylist()
    return from_row(row)
