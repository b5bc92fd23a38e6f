"""What is wrong with one argument, in words a model can act on.

A `Violation` is data: where, which value, what was expected in English and in Chinese, and the allowed values where the
schema lists them. The sentence around it belongs to whoever speaks to the model.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

MAX_VIOLATIONS: Final = 8

Token: TypeAlias = str | int
Text: TypeAlias = tuple[str, str]


class Absent(StrEnum):
    """The type of `ABSENT`: a string, so it can be encoded, and an enum member, so it is told from any text."""

    ABSENT = "(absent)"


ABSENT: Final = Absent.ABSENT
"""The value of a violation whose property is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One place where arguments do not fit their schema.

    `path` is a JSON Pointer (RFC 6901), "" for the whole. `allowed` holds the values of an enum or const, or the known
    property names when the property is unknown; otherwise it is empty. `value` can always be encoded as JSON.
    """

    path: str
    value: Any
    expected: str
    expected_zh: str
    allowed: tuple[Any, ...] = ()


def pointer(tokens: Iterable[Token]) -> str:
    """Write path tokens as a JSON Pointer (RFC 6901)."""
    return "".join("/" + str(token).replace("~", "~0").replace("/", "~1") for token in tokens)


def explain(errors: Iterable[Any], root: Mapping[str, Any], args: Any) -> tuple[Violation, ...]:
    """Turn validator errors on `args` into at most `MAX_VIOLATIONS` violations in order of their paths."""
    found: dict[tuple[tuple[Token, ...], str], Violation] = {}
    for tokens, violation in (item for error in errors for item in _explain_one(error, root, args)):
        found.setdefault((tokens, violation.expected), violation)
    listed = {tokens for (tokens, _), violation in found.items() if violation.allowed}
    kept = [(key, v) for key, v in found.items() if v.allowed or key[0] not in listed]
    kept.sort(key=lambda item: ([_rank(token) for token in item[0][0]], item[0][1]))
    return tuple(violation for _, violation in kept[:MAX_VIOLATIONS])


def _rank(token: Token) -> tuple[int, int, str]:
    return (0, token, "") if isinstance(token, int) else (1, 0, token)


def _explain_one(error: Any, root: Mapping[str, Any], args: Any) -> Iterator[tuple[tuple[Token, ...], Violation]]:
    at = tuple(error.instance_path)
    kind = error.kind.as_dict()
    match error.kind.name:
        case "required":
            yield _violation((*at, kind["property"]), ABSENT, *_required(error, root, kind["property"]))
        case "additionalProperties" | "unevaluatedProperties":
            known = tuple((_parent(error, root) or {}).get("properties", ()))
            for name in kind["unexpected"]:
                yield _violation((*at, name), _value(args, (*at, name)), ("a known property", "已知的属性"), known)
        case "enum":
            yield _violation(at, _value(args, at), _ONE_OF, tuple(kind["options"]))
        case "const":
            yield _violation(at, _value(args, at), _CONST, (kind["expected_value"],))
        case "anyOf" | "oneOf" if kind.get("context"):
            yield from _explain_branches(error, root, args)
        case _:
            yield _violation(at, _value(args, at), _text(error))


def _violation(
    tokens: tuple[Token, ...], value: Any, text: Text, allowed: tuple[Any, ...] = ()
) -> tuple[tuple[Token, ...], Violation]:
    path = pointer(tokens)
    return tokens, Violation(path=path, value=value, expected=text[0], expected_zh=text[1], allowed=allowed)


def _explain_branches(error: Any, root: Mapping[str, Any], args: Any) -> Iterator[tuple[tuple[Token, ...], Violation]]:
    """Speak about the one branch the value was meant for, when its type or a discriminator tells; else about all."""
    at = tuple(error.instance_path)
    branches: list[list[Any]] = error.kind.context
    if not all(branches):
        yield _violation(at, _value(args, at), _ONE_FORM)
        return
    meant = [branch for branch in branches if not any(_is_other_type(e, at) for e in branch)]
    if len(meant) > 1:
        meant = [branch for branch in meant if not any(_is_other_variant(e, at) for e in branch)]
        if len(meant) != 1:
            yield _violation(at, _value(args, at), _SOME_FORM)
            return
    if meant:
        for inner in meant[0]:
            yield from _explain_one(inner, root, args)
        return
    here = [e for branch in branches for e in branch if _is_other_type(e, at)]
    types = [name for e in here if e.kind.name == "type" for name in e.kind.types]
    options = [option for e in here if e.kind.name in _LISTED for option in _options(e)]
    if not options:
        yield _violation(at, _value(args, at), type_text(list(dict.fromkeys(types))))
    elif set(types) <= {"null"}:
        yield _violation(at, _value(args, at), _ONE_OF, (*options, *([None] if types else [])))
    else:
        yield _violation(at, _value(args, at), _SOME_FORM, tuple(options))


def _is_other_type(error: Any, at: tuple[Token, ...]) -> bool:
    return error.kind.name in ("type", *_LISTED) and tuple(error.instance_path) == at


def _is_other_variant(error: Any, at: tuple[Token, ...]) -> bool:
    """Whether a property one level down holds another branch's discriminator."""
    return error.kind.name in _LISTED and len(error.instance_path) == len(at) + 1


def _options(error: Any) -> tuple[Any, ...]:
    return tuple(error.kind.options) if error.kind.name == "enum" else (error.kind.expected_value,)


def _required(error: Any, root: Mapping[str, Any], name: str) -> tuple[Text, tuple[Any, ...]]:
    parent = _parent(error, root) or {}
    node = parent.get("properties", {}).get(name)
    node = node if isinstance(node, Mapping) else {}
    allowed = tuple(node.get("enum", ()))
    types = node.get("type", ())
    en, zh = _ONE_OF if allowed else type_text([types] if isinstance(types, str) else list(types))
    return (f"{en}; this property is required", f"{zh}；此属性必填"), allowed


def _parent(error: Any, root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema node that holds the failed keyword. The validator's schema paths run from the root, past `$ref`."""
    node: Any = root
    for token in error.schema_path[:-1]:
        try:
            node = node[int(token)] if isinstance(node, list) else node[token]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return node if isinstance(node, Mapping) else None


def _value(args: Any, tokens: tuple[Token, ...]) -> Any:
    for token in tokens:
        try:
            args = args[token]
        except (KeyError, IndexError, TypeError):
            return ABSENT
    return args


_ONE_OF: Final = ("one of the allowed values", "允许值之一")
_CONST: Final = ("exactly the allowed value", "唯一的允许值")
_ONE_FORM: Final = ("a value that fits exactly one of the allowed forms", "恰好符合一种允许形式的值")
_SOME_FORM: Final = ("a value that fits one of the allowed forms", "符合某一种允许形式的值")
_LISTED: Final = ("enum", "const")
_TYPES: Final[Mapping[str, Text]] = {
    "string": ("a string", "字符串"),
    "integer": ("an integer", "整数"),
    "number": ("a number", "数字"),
    "boolean": ("true or false", "true 或 false"),
    "null": ("null", "null"),
    "array": ("an array", "数组"),
    "object": ("an object", "对象"),
}
_FORMATS: Final[Mapping[str, str]] = {
    "date-time": "2024-05-01T12:30:00Z",
    "date": "2024-05-01",
    "time": "12:30:00",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "email": "name@example.com",
    "uri": "https://example.com/path",
}
_LIMITS: Final[Mapping[str, Text]] = {
    "maximum": ("at most {}", "不大于 {}"),
    "minimum": ("at least {}", "不小于 {}"),
    "exclusiveMaximum": ("less than {}", "小于 {}"),
    "exclusiveMinimum": ("more than {}", "大于 {}"),
    "maxLength": ("at most {} characters", "至多 {} 个字符"),
    "minLength": ("at least {} characters", "至少 {} 个字符"),
    "maxItems": ("at most {} items", "至多 {} 项"),
    "minItems": ("at least {} items", "至少 {} 项"),
    "additionalItems": ("at most {} items", "至多 {} 项"),
    "maxProperties": ("at most {} properties", "至多 {} 个属性"),
    "minProperties": ("at least {} properties", "至少 {} 个属性"),
    "multipleOf": ("a multiple of {}", "{} 的倍数"),
    "pattern": ("text that matches the pattern {}", "符合正则 {} 的文本"),
    "contentEncoding": ("text encoded as {}", "以 {} 编码的文本"),
    "contentMediaType": ("text of the media type {}", "媒体类型为 {} 的文本"),
}
_FIXED: Final[Mapping[str, Text]] = {
    "uniqueItems": ("items that are all different", "互不相同的各项"),
    "contains": ("an item of the kind the schema asks for", "含有模式要求的项"),
    "unevaluatedItems": ("no further items", "没有多余的项"),
    "falseSchema": ("no value here", "此处不允许有值"),
    "not": ("a value the schema does not exclude", "未被模式排除的值"),
}
ANYTHING: Final = ("a value that fits the schema", "符合模式的值")


def type_text(types: list[str]) -> Text:
    """Name JSON Schema types in both languages: `["integer", "null"]` is "an integer or null"."""
    if not types:
        return "a value", "一个值"
    texts = [_TYPES.get(name, (name, name)) for name in sorted(types, key="null".__eq__)]
    return " or ".join(en for en, _ in texts), " 或 ".join(zh for _, zh in texts)


def _text(error: Any) -> Text:
    name = error.kind.name
    kind = error.kind.as_dict()
    if name == "type":
        return type_text(kind["types"])
    if name in _LIMITS:
        en, zh = _LIMITS[name]
        limit = next(iter(kind.values()))
        en = en.replace("properties", "property").removesuffix("s") if limit == 1 else en
        return en.format(limit), zh.format(limit)
    if name == "format":
        example = _FORMATS.get(kind["format"])
        en, zh = f"text in the format {kind['format']}", f"格式为 {kind['format']} 的文本"
        return (f"{en}, such as {example}", f"{zh}，例如 {example}") if example else (en, zh)
    if name == "propertyNames":
        en, zh = _text(kind["error"])
        return f"property names that are {en}", f"属性名须为{zh}"
    return _FIXED.get(name, ANYTHING)
