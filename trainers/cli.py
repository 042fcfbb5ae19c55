"""The ``drv`` command, from its start: Ctrl-C and errors are one line, whenever they come.

Nothing but what Python has loaded already is imported before they are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``drv``.

    Returns:
        0, or 1 after an error that the user can mend (one line on standard error), or 130
        after Ctrl-C.
    """
    given = tuple(sys.argv[1:] if arguments is None else arguments)

    def work() -> None:
        from trainers.commands.root import run_command

        run_command(given)

    return guarded(work, given)


def guarded(work: Callable[[], None], given: Sequence[str] = ()) -> int:
    """Do the work; what :func:`main` returns.

    A password in an address among the words ``given`` shows in no error, wherever it was typed.
    """
    for name in ("stdout", "stderr"):  # None where the shell has closed it (>&-)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - to the end
    try:
        try:
            work()
        finally:
            sys.stdout.flush()  # here, where a lost reader is known, and not at Python's end
    except KeyboardInterrupt:
        _say("\nStopped.\n")
        return 130
    except Exception as error:
        if isinstance(error, ImportError):
            from trainers.extras import lacking

            if (missing := lacking(error)) is not None:
                _say(f"drv: {missing}\n")
                return 1
        from drv_env.errors import DrvError

        if isinstance(error, DrvError):
            from drv_env.secrets import mask, remember_credentials

            for word in given:
                if "://" in word and "@" in word:
                    remember_credentials(word)
            lines = (line.strip() for line in str(error).splitlines())  # other libraries' words too
            said: str | None = f"drv: {mask(' '.join(filter(None, lines)))}\n"
        else:
            said = _refused_by_the_system(error)
        if said is None:
            raise
        _say(said)
        return 1
    return 0


def _say(text: str) -> None:
    """Write to standard error, where anybody reads it."""
    with suppress(BrokenPipeError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _refused_by_the_system(error: Exception) -> str | None:
    """A line for a full disk, or a standard output that takes no more; None for anything else.

    Files that we write are named where it happens; what comes here was printed.
    """
    from drv_env.whole_files import disk_fault

    reason = disk_fault(error)
    if isinstance(error, BrokenPipeError):
        said = ""  # the reader has seen enough
    elif reason is not None:
        said = f"drv: the standard output, or a file without a name, can't be written: {reason}\n"
    else:
        return None
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):  # Python would try it once more at its end
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return said


if __name__ == "__main__":
    sys.exit(main())
