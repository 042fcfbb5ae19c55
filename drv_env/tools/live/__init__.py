"""The live web: search by Serper, pages by Jina Reader or fetched directly, a summariser."""

from drv_env.tools.live.fetch import FetchReader
from drv_env.tools.live.jina import JinaReader
from drv_env.tools.live.live import LiveTools
from drv_env.tools.live.pages import PageReader, ReadPage
from drv_env.tools.live.serper import Found, Locale, SearchService, Serper, locale_by_script
from drv_env.tools.live.summarise import Digest, Digester, PassageExtractor, Summariser

__all__ = [
    "Digest",
    "Digester",
    "FetchReader",
    "Found",
    "JinaReader",
    "LiveTools",
    "Locale",
    "PageReader",
    "PassageExtractor",
    "ReadPage",
    "SearchService",
    "Serper",
    "Summariser",
    "locale_by_script",
]
