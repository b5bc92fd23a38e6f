"""A file that was damaged or forged anywhere is refused or said to be changed: it neither crashes nor replays as the same."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kernel.errors import TraceError
from replay.wire.player import Player
from replay.wire.stored import load_book
from tests.wirelab import recorded, replayed
from tests.wireworld import agent

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("wire") / "r.trace.json"
    recorded(path, [("chat", agent("chat", "why?"))])
    return path.read_text()


def exchanges(document: dict[str, Any]) -> list[dict[str, Any]]:
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return [span for span in spans if span["name"].startswith("exchange")]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_forged_exchange_is_noticed(data: st.DataObject, text: str, tmp_path: Path) -> None:
    document = json.loads(text)
    span = data.draw(st.sampled_from(exchanges(document)))
    attribute = data.draw(
        st.sampled_from(
            [a for a in span["attributes"] if a["key"].startswith("tracefirst.wire.") and "stringValue" in a["value"]]
        )
    )
    inner = json.loads(attribute["value"]["stringValue"])
    key = data.draw(st.sampled_from(sorted(inner)))
    forged = data.draw(JSON.filter(lambda value: value != inner[key]))
    inner[key] = forged
    attribute["value"]["stringValue"] = json.dumps(inner)
    path = tmp_path / "forged.trace.json"
    path.write_text(json.dumps(document))
    try:
        book = load_book(path)
    except TraceError:
        return
    assert book.problems
    player = Player(book)
    with contextlib.suppress(ValueError, KeyError, IndexError, TypeError):  # a client of forged answers
        replayed(player, "chat", agent("chat", "why?"))
    assert player.account().verdict == "not_checked"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.floats(0, 1))
def test_a_file_that_is_cut_is_refused(cut: float, text: str, tmp_path: Path) -> None:
    path = tmp_path / "cut.trace.json"
    path.write_text(text[: int(len(text.rstrip()) * cut * 0.999)])
    with pytest.raises(TraceError):
        load_book(path)
