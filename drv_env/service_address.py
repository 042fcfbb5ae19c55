"""Addresses of services, as users set them: checked, and without credentials.

An address is shown in errors, logs and progress and is stored with what was asked; therefore no
key or password may stand in it.  The one exception is a proxy's, which is a
:class:`~drv_env.secrets.Secret` from the start.
"""

from __future__ import annotations

import unicodedata
from urllib.parse import unquote

from yarl import URL

from drv_env.errors import SettingError
from drv_env.secrets import mask, remember_credentials

_LONGEST_SHOWN = 200


def service_address(
    text: str, name: str = "base_url", instead: str = "pass the key as api_key"
) -> str:
    """The address of a service, without blanks and slashes at its end.

    Args:
        text: what the user set.
        name: of the setting, for the message.
        instead: what to do with a key, for the message.

    Raises:
        SettingError: for what is no http(s) url with a host, and for one with credentials.

    Example:
        >>> service_address(" http://localhost:8000/v1/ ")
        'http://localhost:8000/v1'
    """
    refuse_credentials(text, name, instead)
    address = text.strip().rstrip("/")
    try:
        url = URL(address)
        fine = url.scheme in ("http", "https") and bool(url.raw_host) and url.port is not None
    except ValueError:
        fine = False
    if not fine or any(sign.isspace() for sign in address):
        raise SettingError(f"{name} must be an http(s) url, got {mask(text)!r:.{_LONGEST_SHOWN}}")
    return address


def refuse_credentials(text: str, name: str, instead: str) -> None:
    """Refuse an address with a user or password before its host, or anything after ``?``,
    ``#`` or ``;``; also where the signs are written as ``%40`` or in full width.

    What it held is masked from now on.

    Raises:
        SettingError: naming the setting, and what to do instead.
    """
    plain = unicodedata.normalize("NFKC", unquote(text))
    if "@" in plain:
        what = "a user or password before its host"
    elif any(mark in plain for mark in "?#;"):
        what = "a query, which may be a key"
    else:
        return
    if not any(mark in text for mark in "@?#;"):
        text = plain
    shown = remember_credentials(text.strip())
    raise SettingError(
        f"{name} {shown:.{_LONGEST_SHOWN}} holds {what}: addresses are shown and stored; "
        f"{instead}, and leave it out of the address"
    )
