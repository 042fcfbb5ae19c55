"""Keys of services: where they come from, and how they stay out of sight.

A key lives in a :class:`Secret`, which shows itself as ``***`` wherever it is printed;
:func:`mask` takes every key this process has met out of any text.  Keys are read from
the environment, or from a file ``.env``, under the names of the DR-Venus release.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from drv_env.secret_forms import Form, forms_of

MASKED = "***"
"""Stands in place of a key."""

SHORTEST_MASKED = 8
"""Characters; shorter values ("EMPTY", "none") are no keys, and masking them would tear text."""

_lock = threading.Lock()
_known: tuple[str, ...] = ()
_forms: tuple[Form, ...] = ()


class Secret:
    """A value that is never shown: ``str``, ``repr`` and formatting give ``***``.

    Making one makes its value known to :func:`mask`.  Pickling carries the value, for
    worker processes need it.

    Example:
        >>> key = Secret("sk-not-a-real-key")
        >>> f"{key} {key!r}"
        "*** Secret('***')"
        >>> mask("the key sk-not-a-real-key was refused")
        'the key *** was refused'
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value
        _remember(value)

    def reveal(self) -> str:
        """The value, for the one place that sends it."""
        return self._value

    def __str__(self) -> str:
        return MASKED

    def __repr__(self) -> str:
        return f"Secret('{MASKED}')"

    def __format__(self, spec: str) -> str:
        return format(MASKED, spec)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> tuple[Any, ...]:
        return Secret, (self._value,)


def as_secret(value: Secret | str | None) -> Secret | None:
    """The value as a :class:`Secret`; None for None and for a blank one."""
    if isinstance(value, Secret):
        return value if value else None
    return Secret(value.strip()) if value and value.strip() else None


def _remember(value: str) -> None:
    global _known, _forms
    if len(value) < SHORTEST_MASKED or value in _known:
        return
    with _lock:
        _known = tuple(sorted({*_known, value}, key=len, reverse=True))
        _forms = tuple(form for known in _known for form in _forms_of(known))


@cache
def _forms_of(value: str) -> tuple[Form, ...]:
    return tuple(forms_of(value))


def mask(text: str) -> str:
    """The text with every known key replaced by ``***``, in whatever form it stands there.

    The forms are those of :mod:`drv_env.secret_forms`.  Time: length × number of keys.

    Example:
        >>> key = Secret("a/key+in=texts")
        >>> mask("?key=a%2Fkey%2Bin%3Dtexts, a/key&#43;in=texts")
        '?key=***, ***'
    """
    for form in _forms:
        text = form.replaced(text, MASKED)
    return text


def mask_data(value: Any) -> Any:
    """:func:`mask` on every string inside lists, tuples and mappings; the rest as it is."""
    if not _known:
        return value
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {mask_data(key): mask_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([mask_data(item) for item in value])
    return value


class MaskingFilter(logging.Filter):
    """Takes keys out of log records.  Add it to a handler to cover other libraries too."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask the record's message; always let it pass."""
        message = record.getMessage()
        masked = mask(message)
        if masked != message:
            record.msg, record.args = masked, None
        return True


def get_logger(name: str) -> logging.Logger:
    """A logger whose messages are masked."""
    logger = logging.getLogger(name)
    if not any(isinstance(item, MaskingFilter) for item in logger.filters):
        logger.addFilter(MaskingFilter())
    return logger


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """What the services need, by the release's names.

    Attributes:
        serper: SERPER_KEY_ID, for search.
        jina: JINA_API_KEYS, one or several with commas between, for reading pages.
        api_base: API_BASE, the summariser's endpoint, such as ``https://host/v1``.
        api_key: API_KEY, its key.
        summary_model: SUMMARY_MODEL_NAME.
        judge_base: JUDGE_API_BASE; API_BASE where unset.
        judge_key: JUDGE_API_KEY; API_KEY where neither it nor JUDGE_API_BASE is set, for a
            key is not sent to an endpoint that it was not given for.
        judge_model: JUDGE_MODEL_NAME.
        api_omit: API_OMIT_FIELDS, names of optional fields that the endpoint doesn't take
            (:data:`drv_env.request_fields.OPTIONAL`), with commas between.
        api_limit: API_MAX_TOKENS_FIELD, such as ``max_completion_tokens``.
        judge_omit, judge_limit: JUDGE_OMIT_FIELDS, JUDGE_MAX_TOKENS_FIELD; where JUDGE_API_BASE
            is unset, those of API_BASE.
        proxy: PROXY, such as ``http://user:password@host:port``.
    """

    serper: Secret | None = None
    jina: tuple[Secret, ...] = ()
    api_base: str | None = None
    api_key: Secret | None = None
    summary_model: str | None = None
    judge_base: str | None = None
    judge_key: Secret | None = None
    judge_model: str | None = None
    api_omit: tuple[str, ...] = ()
    api_limit: str = "max_tokens"
    judge_omit: tuple[str, ...] = ()
    judge_limit: str = "max_tokens"
    proxy: Secret | None = None

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str] | None = None,
        dotenv: str | Path | None = ".env",
    ) -> Keys:
        """Read them; nothing is written to the environment.

        Args:
            environ: the variables; the process's own by default.  They win over the file.
            dotenv: a file of ``NAME=value`` lines, in the working folder by default; one
                that does not exist is passed over.  None reads no file.

        Raises:
            SettingError: for an endpoint whose address holds credentials, for a field that is no
                optional one, and for a file that
                can't be read (:mod:`drv_env.env_file`).

        Example:
            >>> keys = Keys.from_env({"JINA_API_KEYS": "first-long-key, second-long-key"}, None)
            >>> keys.jina
            (Secret('***'), Secret('***'))
        """
        # both need this module
        from drv_env.env_file import read_env_file
        from drv_env.request_fields import check_field_names
        from drv_env.service_address import refuse_credentials

        values: dict[str, str | None] = {}
        if dotenv is not None:
            values.update(read_env_file(dotenv))
        values.update(os.environ if environ is None else environ)

        def plain(name: str) -> str | None:
            return (values.get(name) or "").strip() or None

        def address(name: str, key: str) -> str | None:
            found = plain(name)
            if found is not None:
                refuse_credentials(found, name, f"put the key into {key}")
            return found

        def fields(whose: str) -> tuple[tuple[str, ...], str] | None:
            called = f"{whose}_OMIT_FIELDS", f"{whose}_MAX_TOKENS_FIELD"
            omit, limit = map(plain, called)
            if omit is None and limit is None:
                return None
            names = tuple((omit or "").replace(",", " ").split())
            check_field_names(names, limit or "max_tokens", called)
            return names, limit or "max_tokens"

        base, key = address("API_BASE", "API_KEY"), as_secret(plain("API_KEY"))
        judge_base = address("JUDGE_API_BASE", "JUDGE_API_KEY")
        judge_key = as_secret(plain("JUDGE_API_KEY"))
        api_fields = fields("API") or ((), "max_tokens")
        judge_fields = fields("JUDGE") or (((), "max_tokens") if judge_base else api_fields)
        jina = (plain("JINA_API_KEYS") or "").split(",")
        return cls(
            serper=as_secret(plain("SERPER_KEY_ID")),
            jina=tuple(Secret(part.strip()) for part in jina if part.strip()),
            api_base=base,
            api_key=key,
            summary_model=plain("SUMMARY_MODEL_NAME"),
            judge_base=judge_base or base,
            judge_key=judge_key or (None if judge_base else key),
            judge_model=plain("JUDGE_MODEL_NAME"),
            api_omit=api_fields[0],
            api_limit=api_fields[1],
            judge_omit=judge_fields[0],
            judge_limit=judge_fields[1],
            proxy=proxy_secret(plain("PROXY")),
        )


def proxy_secret(url: Secret | str | None) -> Secret | None:
    """A proxy's address as a :class:`Secret`; its credentials alone are masked in texts too."""
    secret = as_secret(url)
    if secret is not None:
        remember_credentials(secret.reveal())
    return secret


def remember_credentials(url: str) -> str:
    """Make what an address holds besides an address known to :func:`mask`; give it without.

    That is what stands before an ``@``, its user and password, and all after a ``?``, ``#``
    or ``;``.

    Example:
        >>> remember_credentials("http://user:a-password@host:8000/v1?key=a-key-to-the-host")
        'http://***@host:8000/v1?***'
    """
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    credentials, at, place = rest.rpartition("@")
    if at:
        user, _, password = credentials.partition(":")
        for text in (credentials, password, password or user):
            _remember(text)
            _remember(unquote(text))
    end = min((place.index(mark) for mark in "?#;" if mark in place), default=len(place))
    for part in place[end + 1 :].translate(dict.fromkeys(map(ord, "#?;"), "&")).split("&"):
        value = part.partition("=")[2] or part
        _remember(value)
        _remember(unquote(value))
    after = f"{place[end]}{MASKED}" if end < len(place) else ""
    return scheme + separator + (f"{MASKED}@" if at else "") + place[:end] + after
