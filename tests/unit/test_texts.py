"""What the kernel says to the model: complete in both languages, replaceable, and safe to fill in with anything."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, strategies as st

from kernel.errors import ConfigError
from kernel.record.texts import CATALOGUES, Texts, texts_for

KEYS = sorted(CATALOGUES["en"])


def fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


def test_both_languages_have_the_same_keys() -> None:
    assert CATALOGUES["en"].keys() == CATALOGUES["zh"].keys()


@pytest.mark.parametrize("key", KEYS)
def test_both_languages_say_the_same_facts(key: str) -> None:
    assert fields(CATALOGUES["en"][key]) == fields(CATALOGUES["zh"][key])


@pytest.mark.parametrize("language", ["en", "zh"])
@given(value=st.text())
def test_any_value_can_be_filled_into_any_text(language: str, value: str) -> None:
    texts = Texts(language)
    for key in KEYS:
        names = fields(CATALOGUES[language][key])
        said = texts.say(key, **dict.fromkeys(names, value))
        assert value in said or not names


def test_a_replaced_text_is_said_in_place_of_the_kernels() -> None:
    texts = texts_for("en", {"observation": "RESULT {text}"})
    assert texts.say("observation", text="3") == "RESULT 3"
    assert texts.say("fault.blank") == CATALOGUES["en"]["fault.blank"]


@pytest.mark.parametrize(
    ("key", "template", "said"),
    [
        ("no.such", "x", "unknown key 'no.such'"),
        ("observation", "{result}", "uses {result}; it may use {text}"),
        ("observation", "{text!r:>9}", "uses {text!r:>9}"),
        ("observation", "{text.__class__}", "uses {text.__class__}"),
        ("observation", "{}", "uses {}"),
        ("observation", 'as JSON: {"a": {text}}', "a plain brace is written twice"),
        ("observation", "{text", "is no template"),
        ("fault.blank", "{text}", "it may use no placeholder"),
    ],
)
def test_a_replacement_that_could_fail_in_a_run_is_refused_before_it(key: str, template: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Texts("en", {key: template})
    assert said in str(refused.value)


def test_an_unknown_language_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="choose one of en, zh"):
        Texts("de")
