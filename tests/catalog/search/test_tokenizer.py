from __future__ import annotations

import pytest

from toolyard.catalog.search.stemmer import stem
from toolyard.catalog.search.synonyms import find_synonym_groups
from toolyard.catalog.search.tokenizer import extract_terms, fold_text, split_runs, split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("getHTTPResponse", ["get", "http", "response"]),
        ("get_http_response", ["get", "http", "response"]),
        ("get-http-response", ["get", "http", "response"]),
        ("GetHttpResponse", ["get", "http", "response"]),
        ("listPDFs", ["list", "pdfs"]),
        ("URLs", ["urls"]),
        ("base64Encode", ["base", "64", "encode"]),
        ("v2.files/list", ["v", "2", "files", "list"]),
        ("XMLHttpRequest", ["xml", "http", "request"]),
        ("résumé Ünïcode", ["resume", "unicode"]),
        ("ＰＤＦ", ["pdf"]),
        ("搜索网页", ["搜索", "索网", "网页"]),
        ("查web页面", ["查", "web", "页面"]),
        ("поиск Файлов", ["поиск", "фаилов"]),
        ("검색", ["검색"]),
        ("…!?  --__", []),
        ("", []),
    ],
)
def test_text_is_taken_apart_into_words(text: str, words: list[str]) -> None:
    assert [piece for run in split_runs(fold_text(text)) for piece in split_words(run)] == words


@pytest.mark.parametrize(
    "words",
    [
        "search searches searching searched",
        "create creates creating created creation creator",
        "query queries querying",
        "repository repositories",
        "translate translation translator translating",
        "analyze analysis analyzing analyses analyser",
        "calculate calculator calculation",
        "convert conversion converter converting",
        "describe description describing",
        "manage management manager managing",
        "category categories categorize",
        "delivery deliver delivered deliveries",
        "run running runs",
        "summary summaries summarize summarizing",
        "recommend recommendation recommended",
    ],
)
def test_the_forms_of_a_word_have_one_stem(words: str) -> None:
    assert len({stem(word) for word in words.split()}) == 1


@pytest.mark.parametrize(
    "words",
    ["news new", "general generate", "party part", "status state", "paper page", "user use", "bus business"],
)
def test_other_words_have_other_stems(words: str) -> None:
    one, other = words.split()
    assert stem(one) != stem(other)


@pytest.mark.parametrize("word", ["", "a", "s", "ss", "ing", "64", "搜索", "x" * 500, "ed", "поиск"])
def test_other_words_are_not_stemmed(word: str) -> None:
    assert stem(word) == word


def test_a_name_written_together_is_there_as_a_whole_and_in_parts() -> None:
    assert set(extract_terms("GitHub")) == {"git", "hub", "github"}
    assert "base64" in extract_terms("base64")


def test_stop_words_are_left_out() -> None:
    assert extract_terms("the") == ()
    assert extract_terms("sendToUser") == (stem("send"), stem("user"), stem("sendtouser"))


def test_relatives_are_mutual() -> None:
    for word in ("delete", "image", "directory", "search", "天气"):
        term = stem(word)
        assert find_synonym_groups(term)
        for family in find_synonym_groups(term):
            assert term in family
            assert all(family in find_synonym_groups(other) for other in family)
    assert find_synonym_groups("qwertz") == ()
