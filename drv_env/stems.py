"""Stems of terms, by Tantivy's stemmers, in the language that a text is written in.

``mills`` and ``mill``, ``owned`` and ``owns`` have one stem each.  Terms are those of
:mod:`drv_env.unicode_text`; in scripts without spaces, and in languages that Tantivy doesn't know,
a term is its own stem.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

import tantivy

from drv_env.unicode_text import query_terms

_SCRIPTS = (
    ("russian", re.compile("[\u0400-\u04ff]")),
    ("greek", re.compile("[\u0370-\u03ff\u1f00-\u1fff]")),
    ("arabic", re.compile("[\u0600-\u06ff\u0750-\u077f]")),
    ("tamil", re.compile("[\u0b80-\u0bff]")),
)
_LATIN = (
    *("english", "danish", "dutch", "finnish", "french", "german", "hungarian", "italian"),
    *("norwegian", "portuguese", "romanian", "spanish", "swedish", "turkish"),
)
"""Of equally likely ones the first is taken."""

_STOP_WORDS = {
    "arabic": "في من على إلى عن مع هذا هذه التي الذي كان أو ما لا",
    "greek": "και το η ο τα του της των την τον να σε με που για από είναι στο στη στην",
    "romanian": "și în de la cu pe nu este care un o din a fost prin ca mai după între sau",
    "tamil": "ஒரு என்று மற்றும் இந்த இது என்ற",
    "turkish": "ve bir bu da de için ile olarak çok en daha olan ne kim nerede",
}
"""Of languages for which Tantivy has a stemmer and no list of its own."""

_SAMPLE_CHARS = 600
_SAMPLE_TERMS = 400


def language_of(text: str) -> str | None:
    """The language of a text among those that have a stemmer, or None.

    By the script of samples from its beginning, middle and end; in Latin letters by the most stop
    words.  English where there are none, and no letter that English hasn't.

    Example:
        >>> language_of("Die Mühle wurde im Jahr 1912 von der Familie gebaut.")
        'german'
    """
    if len(text) > 3 * _SAMPLE_CHARS:
        middle = (len(text) - _SAMPLE_CHARS) // 2
        text = " ".join(
            text[at : at + _SAMPLE_CHARS] for at in (0, middle, len(text) - _SAMPLE_CHARS)
        )
    return _language_of(text)


@lru_cache(4096)
def _language_of(sample: str) -> str | None:
    if not sample.isascii():
        for language, letters in _SCRIPTS:
            if len(letters.findall(sample)) > len(sample) // 4:
                return language
    found = query_terms(sample, _SAMPLE_TERMS)
    joined = " ".join(found)
    common = [len(found) - len(_stop_words(language).analyze(joined)) for language in _LATIN]
    most = max(common)
    if most == 0:
        return "english" if sample.isascii() else None
    return _LATIN[common.index(most)]


@lru_cache(65_536)
def stem(term: str, language: str | None) -> str:
    """The stem of a term in a language; the term itself where the language is None.

    Example:
        >>> stem("founded", "english"), stem("mühlen", "german"), stem("mill", None)
        ('found', 'muhl', 'mill')
    """
    if language is None:
        return term
    found = _stemmer(language).analyze(term)
    return found[0] if found else term


@lru_cache(65_536)
def is_common(term: str, language: str | None) -> bool:
    """Whether a term is a stop word of the language."""
    return language is not None and not _stop_words(language).analyze(term)


@cache
def _stemmer(language: str) -> tantivy.TextAnalyzer:
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.raw())
    return builder.filter(tantivy.Filter.stemmer(language)).build()


@cache
def _stop_words(language: str) -> tantivy.TextAnalyzer:
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace())
    own = _STOP_WORDS.get(language)
    if own is not None:
        return builder.filter(tantivy.Filter.custom_stopword(own.split())).build()
    return builder.filter(tantivy.Filter.stopword(language)).build()
