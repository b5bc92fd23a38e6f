"""Shown text never exceeds its limit, says what it leaves out, and the rest can be read back whole."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import example, given, strategies as st

from kernel.record.observation import ArtifactError, ArtifactStore, Language, cut_mark, show

texts = st.text(st.characters(codec=None), max_size=400)
pairs = st.lists(st.sampled_from(["\ud83d\ude00", "a", "\ud83d", "\ude00", "中"]), max_size=120).map("".join)
languages: st.SearchStrategy[Language] = st.sampled_from(["en", "zh"])
handles = st.sampled_from([None, "artifact-1", "artifact-123"])


def splits_a_pair(text: str, position: int) -> bool:
    around = text[max(position - 1, 0) : position + 1]
    return re.fullmatch("[\ud800-\udbff][\udc00-\udfff]", around) is not None


@given(texts | pairs, st.integers(0, 500), handles, languages)
@example("x" * 10_000, 200, "artifact-1", "en")
@example("\ud83d\ude00" * 300, 201, "artifact-1", "zh")
def test_shown_text_fits_its_limit_mark_included(text: str, limit: int, handle: str | None, language: Language) -> None:
    shown = show(text, limit=limit, handle=handle, language=language)
    assert len(shown.text) <= limit
    assert shown.full_chars == len(text)
    assert shown.truncated == (len(text) > limit)
    assert 0 <= shown.shown_chars <= len(text)
    assert show(text, limit=limit, handle=handle, language=language) == shown
    if not shown.truncated:
        assert shown.text == text


@given(st.integers(0, 2000), st.integers(150, 400), st.booleans(), languages)
def test_a_cut_text_is_head_mark_and_tail_and_the_mark_tells_the_truth(
    extra: int, limit: int, paired: bool, language: Language
) -> None:
    text = ("\ud83d\ude00" if paired else "ab") * (limit // 2 + 1 + extra)
    shown = show(text, limit=limit, handle="artifact-7", language=language)
    found = re.search(r"\n\[.*?\]\n", shown.text)
    assert found is not None
    head, tail = shown.text[: found.start()], shown.text[found.end() :]
    assert text.startswith(head) and text.endswith(tail)
    cut = len(text) - len(head) - len(tail)
    assert found.group() == cut_mark(cut, len(text), "artifact-7", language, start=len(head))
    assert shown.shown_chars == len(head) + len(tail) == len(text) - cut
    assert not splits_a_pair(text, len(head)) and not splits_a_pair(text, len(text) - len(tail))
    assert limit - len(shown.text) <= 6, "room for content was left unused"


def test_cut_json_is_plainly_marked_and_names_both_sizes_and_the_handle() -> None:
    text = json.dumps([{"service": "order", "p99_ms": n} for n in range(1500)])
    shown = show(text, limit=2000, handle="artifact-1", language="en")
    cut = len(text) - shown.shown_chars
    assert f"\n[Cut: {cut} of {len(text)} characters are left out here, {shown.shown_chars} are shown." in shown.text
    assert ' To read on: read_range(handle="artifact-1", start=' in shown.text
    assert len(shown.text) <= 2000


def test_the_mark_exists_in_chinese() -> None:
    assert cut_mark(90, 100, "artifact-1", "zh", start=5) == (
        "\n[已截断：全文 100 字符，此处省略 90 字符，已显示 10 字符。"
        '继续读取：read_range(handle="artifact-1", start=5)]\n'
    )


def test_without_a_handle_no_call_is_offered() -> None:
    assert cut_mark(90, 100, None, "en") == "\n[Cut: 90 of 100 characters are left out here, 10 are shown.]\n"


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (40, "xxxxxxx\n[cut 286/300 artifact-1]\nxxxxxxx"),
        (10, "xxx[cut]xx"),
        (5, "[cut]"),
        (3, "x…x"),
        (1, "…"),
        (0, ""),
    ],
)
def test_tiny_limits_get_shorter_marks(limit: int, text: str) -> None:
    assert show("x" * 300, limit=limit, handle="artifact-1", language="en").text == text


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="must be 0 or more"):
        show("text", limit=-1)


def test_users_can_give_their_own_mark_even_one_that_grows_as_less_is_cut() -> None:
    def mark(cut: int, total: int, handle: str | None, language: Language, *, start: int) -> str:
        return "<" + "-" * (start // 4) + ">"

    shown = show("x" * 500, limit=100, mark=mark)
    assert 90 < len(shown.text) <= 100 and "<-" in shown.text


def test_handles_count_up_in_order_and_equal_texts_share_one() -> None:
    store = ArtifactStore()
    assert [store.put(text) for text in ("a", "b", "a", "c")] == [
        "artifact-1",
        "artifact-2",
        "artifact-1",
        "artifact-3",
    ]
    assert store.handles() == ("artifact-1", "artifact-2", "artifact-3")
    assert store.get("artifact-2") == "b"


def test_a_range_comes_under_a_line_that_places_it() -> None:
    store = ArtifactStore()
    handle = store.put("0123456789")
    assert store.read_range(handle, 2, end=5) == "[artifact-1: characters 2 to 5 of 10; to read on: start=5]\n234"
    assert store.read_range(handle, 2, length=3) == store.read_range(handle, 2, end=5)
    assert store.read_range(handle) == "[artifact-1: characters 0 to 10 of 10]\n0123456789"


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        (8, 99, "[artifact-1: characters 8 to 10 of 10; asked for 8 to 99]\n89"),
        (-3, 2, "[artifact-1: characters 0 to 2 of 10; asked for -3 to 2; to read on: start=2]\n01"),
        (50, 60, "[artifact-1: characters 10 to 10 of 10; asked for 50 to 60]\n"),
        (6, 4, "[artifact-1: characters 6 to 6 of 10; asked for 6 to 4; to read on: start=6]\n"),
    ],
)
def test_a_range_outside_the_text_is_clamped_and_says_so(start: int, end: int, text: str) -> None:
    store = ArtifactStore()
    assert store.read_range(store.put("0123456789"), start, end=end) == text


def test_ranges_and_errors_speak_chinese_too() -> None:
    store = ArtifactStore(language="zh")
    with pytest.raises(ArtifactError, match="本次运行还没有保存任何长文本"):
        store.get("artifact-1")
    handle = store.put("订单服务超时")
    assert store.read_range(handle, 2, end=9) == "[artifact-1：第 2 到 6 字符，全文 6 字符；请求的是 2 到 9]\n服务超时"
    with pytest.raises(ArtifactError, match="只能给出一个"):
        store.read_range(handle, 0, end=1, length=1)


def test_an_unknown_handle_is_answered_with_the_known_ones() -> None:
    store = ArtifactStore()
    with pytest.raises(ArtifactError, match="kept no long text yet"):
        store.read_range("artifact-1")
    for n in range(30):
        store.put(f"text {n}")
    with pytest.raises(ArtifactError, match=r"no artifact 'artifact-31'\. Known: …, artifact-11, .*, artifact-30\.$"):
        store.read_range("artifact-31")


def test_end_and_length_together_are_refused_with_the_right_form() -> None:
    store = ArtifactStore()
    store.put("text")
    with pytest.raises(
        ArtifactError, match=r'not both; for example read_range\(handle="artifact-1", start=1, length=2\)'
    ):
        store.read_range("artifact-1", 1, end=3, length=2)


def test_a_store_that_could_return_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        ArtifactStore(limit=1)


@given(texts | pairs, st.integers(2, 200))
@example("\ud83d\ude00" * 120, 100)
@example("\ud83d\ude00" * 120, 101)
@example("\ud83d\ude00" * 120, 3)
def test_reading_on_and_on_gives_the_whole_text_within_the_bound(text: str, limit: int) -> None:
    store = ArtifactStore(limit=limit)
    handle = store.put(text)
    position, rest = 0, ""
    while position < len(text):
        read = store.read_range(handle, position)
        assert len(read) <= limit
        body = re.sub(r"\A\[(artifact-1: characters )?\d+( to |-)\d+( of |/)\d+[^\]]*\]\n", "", read)
        assert body and text.startswith(body, position)
        rest += body
        position += len(body)
        assert not splits_a_pair(text, position)
    assert rest == text


@given(texts | pairs, st.integers(-50, 500), st.integers(-50, 500), st.integers(2, 300))
def test_any_range_is_answered_within_the_bound(text: str, start: int, end: int, limit: int) -> None:
    store = ArtifactStore(limit=limit)
    assert len(store.read_range(store.put(text), start, end=end)) <= limit


@given(st.text(max_size=2000), st.integers(60, 300))
def test_what_was_read_is_not_cut_again_under_the_same_limit(text: str, limit: int) -> None:
    store = ArtifactStore(limit=limit)
    assert not show(store.read_range(store.put(text)), limit=limit).truncated
