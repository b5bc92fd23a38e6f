"""Every text the kernel says to the model, in English and in Chinese. A user can replace any of them by its key."""

from __future__ import annotations

import string
from collections.abc import Mapping
from functools import lru_cache

from kernel.errors import ConfigError

_PARSE_RULES = (
    "cut-off",
    "thinking-only",
    "ambiguous",
    "several-blocks",
    "missing-arguments",
    "not-an-object",
    "malformed-json",
    "malformed-call",
    "too-deep",
)

_EN = {
    "system.text": (
        "You solve the task step by step with the tools below.\n"
        "In every reply, think first, then give exactly one action as a JSON object:\n\n"
        'Thought: why this action is the next one\n{{"action": "tool name", "args": {{...}}}}\n\n'
        "The result comes back as an observation. When the task is done, use the action finish:\n"
        '{{"action": "finish", "args": {{"answer": "the whole answer"}}}}\n\nTools:\n{tools}'
    ),
    "system.tools.finish": "When the task is done, call the tool finish with the whole answer.",
    "finish.description": "End the task with the answer.",
    "notes": "Notes that may help:\n{notes}",
    "observation": "Observation: {text}",
    "condensed": "[Condensed] {count} earlier steps, oldest first:\n{lines}",
    "condensed.line": "{step}. {call} -> {outcome}: {result}",
    "fault.no_action": "the reply holds no action",
    "fault.blank": "the reply is empty",
    "fault.length": "the reply was cut off at the output limit{bound}; nothing of it was run. Answer more briefly",
    "fault.filter": "the provider withheld the reply (content filter)",
    "fault.refusal": "the model refused: {text}",
    "fault.provider": "the model server rejected the reply ({reason})",
    "fault.finish_alone": "[FormatError] finish must be called alone. Use the results first, then call finish.",
    "condensed.left_out": "({count} older steps are not listed)",
    "fault.blank_finish": "finish needs a non-empty answer",
    "fault.text": (
        "[FormatError] {message}. Nothing was run. Reply with a thought and exactly one action, for example:\n"
        'Thought: I look at the facts first.\n{{"action": "{tool}", "args": {{{args}}}}}'
    ),
    "fault.tools": "[FormatError] {message}. Nothing was run. Call a tool, or give the whole answer as text.",
    "fault.tools.finish": (
        "[FormatError] {message}. Nothing was run. Call a tool, or call finish with the whole answer, for example: "
        'finish({{"answer": "the whole answer"}})'
    ),
    "fault.example.answer": "the whole answer",
    **{f"fault.parse.{rule}": "{message}" for rule in _PARSE_RULES},
    "tool.unknown": '[ToolError] There is no tool "{name}". The tools are: {names}.{nearest}',
    "tool.nearest": ' Did you mean "{name}"?',
    "tool.bad_args": '[ToolError] The arguments of "{name}" do not fit, so it was not run:\n{problems}\nIts schema: {schema}',
    "tool.bad_json": '[ToolError] The arguments of "{name}" cannot be read, so it was not run: {message}\nIts schema: {schema}',
    "tool.repaired": (
        '[ToolError] The arguments of "{name}" had to be repaired, and it has side effects, so it was not run. '
        "Send them again as valid JSON."
    ),
    "tool.problem": "- {path}: {value} is not {expected}.{allowed}",
    "tool.missing": "- {path}: is missing; expected {expected}.{allowed}",
    "tool.allowed": " Allowed: {values}.",
    "tool.error": '[ToolError] "{name}" failed with {type}: {message}. Change the arguments or try another tool.',
    "tool.timeout": '[ToolError] "{name}" did not answer within {seconds} s. Ask for less, or try another tool.',
    "tool.timeout_effect": (
        '[ToolError] "{name}" did not answer within {seconds} s. It is not known whether it took effect. '
        "Check before you do anything that depends on it; it is not run again."
    ),
    "tool.cancelled": '[ToolError] "{name}" was cancelled from inside. Try another tool.',
    "tool.denied.read_only": '[ToolError] "{name}" has side effects and this run is read-only, so it was not run. Use tools that only read.',
    "tool.denied.dry_run": (
        '[DryRun] "{name}" was NOT run and nothing has changed: this is a dry run. '
        "Go on as if you only planned this action, and say so in the answer."
    ),
    "tool.denied.allowlist": '[ToolError] "{name}" is not on the list of allowed tools, so it was not run. Allowed: {names}.',
    "tool.denied.confirm": '[ToolError] "{name}" was not approved, so it was not run. Do not ask for it again; find another way.',
    "tool.denied.confirm_failed": '[ToolError] "{name}" was not run: asking for its approval failed ({failure}).',
    "tool.denied.cost": (
        '[ToolError] "{name}" was not run: its estimated cost of {estimate} exceeds what is left ({left}) and was not approved.'
    ),
    "tool.denied.fork": '[ToolError] "{name}" has side effects, and this is a fork of a recorded run, so it was not run.',
    "tool.denied.masked": (
        '[ToolError] "{name}" was not run: its arguments hold a secret that was masked in the recording this run goes on from.'
    ),
    "tool.denied.calls": '[ToolError] "{name}" was not run: it may be called {limit} times in a run, and was. Use what you have.',
    "tool.unknown_outcome": (
        '[ToolError] "{name}" was started before with these arguments and never finished. It is not known whether it took '
        "effect, so it was not run again. Check with a tool that reads."
    ),
    "tool.conflict": '[ToolError] "{name}" was called before under the same key with other arguments, so it was not run.',
    "tool.duplicate": '[Duplicate] "{name}" already ran with these arguments; it was not run again. Its result was: {text}',
    "ignored": "[FormatError] Only the first action was run. Ignored: {names}. Send one action at a time.",
    "guard.answered": (
        '[LoopGuard] You just called "{name}" with the same arguments (step {step}); it was not run again.{again} '
        "Its result was: {text}"
    ),
    "guard.answered.again": " If it gives something else each time, such as a next page, send the call once more: it is then run.",
    "guard.warned.again": (
        '[LoopGuard] "{name}" gave this very result in step {step} already. Repeating it brings nothing new: '
        "use what you have, change the approach, or finish."
    ),
    "guard.warned.cycle": (
        "[LoopGuard] The last {period} actions ({calls}) repeat what you did before (since step {step}), with the same results. "
        "Change the approach or finish."
    ),
    "finish.refused": "[FinishRefused] The answer was not accepted: {reason}. Correct it and finish again.",
    "cut": "\n[... {cut} of {total} characters cut here{rest} ...]\n",
    "cut.rest": '; read on with read_range(handle="{handle}", start={start})',
    "read_range.description": "Read a part of a long observation that was cut: characters start to start+length.",
}

_ZH = {
    "system.text": (
        "请使用下列工具，一步一步完成任务。\n"
        "每次回复先思考，然后给出恰好一个动作，写成 JSON 对象：\n\n"
        'Thought: 为什么下一步是这个动作\n{{"action": "工具名", "args": {{...}}}}\n\n'
        "结果会作为观察返回。任务完成时使用动作 finish：\n"
        '{{"action": "finish", "args": {{"answer": "完整的答案"}}}}\n\n工具：\n{tools}'
    ),
    "system.tools.finish": "任务完成时，请调用工具 finish 并给出完整的答案。",
    "finish.description": "用答案结束任务。",
    "notes": "可能有用的笔记：\n{notes}",
    "observation": "观察：{text}",
    "condensed": "[已压缩] 较早的 {count} 步，从旧到新：\n{lines}",
    "condensed.line": "{step}. {call} -> {outcome}：{result}",
    "fault.no_action": "回复中没有动作",
    "fault.blank": "回复为空",
    "fault.length": "回复在输出上限处{bound}被截断，其中没有任何动作被执行。请回答得更简短",
    "fault.filter": "服务方拦截了回复（内容过滤）",
    "fault.refusal": "模型拒绝回答：{text}",
    "fault.provider": "模型服务拒绝了这个回复（{reason}）",
    "fault.finish_alone": "[FormatError] finish 必须单独调用。请先使用结果，再调用 finish。",
    "condensed.left_out": "（更早的 {count} 步未列出）",
    "fault.blank_finish": "finish 需要非空的答案",
    "fault.text": (
        "[FormatError] {message}。没有执行任何动作。请回复思考和恰好一个动作，例如：\n"
        'Thought: 我先查看事实。\n{{"action": "{tool}", "args": {{{args}}}}}'
    ),
    "fault.tools": "[FormatError] {message}。没有执行任何动作。请调用工具，或用文字给出完整的答案。",
    "fault.tools.finish": (
        "[FormatError] {message}。没有执行任何动作。请调用工具，或调用 finish 并给出完整的答案，例如："
        'finish({{"answer": "完整的答案"}})'
    ),
    "fault.example.answer": "完整的答案",
    "fault.parse.cut-off": "回复被截断（{message}）",
    "fault.parse.thinking-only": "回复只有思考，没有动作（{message}）",
    "fault.parse.ambiguous": "动作有两种读法（{message}）",
    "fault.parse.several-blocks": "回复包含多个代码块，只能有一个（{message}）",
    "fault.parse.missing-arguments": "动作缺少参数（{message}）",
    "fault.parse.not-an-object": "参数不是 JSON 对象（{message}）",
    "fault.parse.malformed-json": "JSON 不合法（{message}）",
    "fault.parse.malformed-call": "调用无法读取（{message}）",
    "fault.parse.too-deep": "嵌套过深（{message}）",
    "tool.unknown": "[ToolError] 没有名为“{name}”的工具。可用的工具：{names}。{nearest}",
    "tool.nearest": "你是想用“{name}”吗？",
    "tool.bad_args": "[ToolError] “{name}”的参数不符合要求，因此没有执行：\n{problems}\n它的 schema：{schema}",
    "tool.bad_json": "[ToolError] “{name}”的参数无法读取，因此没有执行：{message}\n它的 schema：{schema}",
    "tool.repaired": "[ToolError] “{name}”的参数需要修复，而它有副作用，因此没有执行。请用合法的 JSON 重新发送。",
    "tool.problem": "- {path}：{value} 不是{expected}。{allowed}",
    "tool.missing": "- {path}：缺失，应为{expected}。{allowed}",
    "tool.allowed": "允许的值：{values}。",
    "tool.error": "[ToolError] “{name}”失败，{type}：{message}。请修改参数或换一个工具。",
    "tool.timeout": "[ToolError] “{name}”在 {seconds} 秒内没有返回。请缩小范围，或换一个工具。",
    "tool.timeout_effect": (
        "[ToolError] “{name}”在 {seconds} 秒内没有返回，不知道是否已经生效。在做依赖它的事情之前请先检查；它不会被再次执行。"
    ),
    "tool.cancelled": "[ToolError] “{name}”从内部被取消。请换一个工具。",
    "tool.denied.read_only": "[ToolError] “{name}”有副作用，而本次运行是只读的，因此没有执行。请使用只读工具。",
    "tool.denied.dry_run": "[DryRun] “{name}”没有执行，什么都没有改变：这是演练。请当作只计划了这个动作继续，并在答案中说明。",
    "tool.denied.allowlist": "[ToolError] “{name}”不在允许的工具列表中，因此没有执行。允许的工具：{names}。",
    "tool.denied.confirm": "[ToolError] “{name}”没有得到批准，因此没有执行。不要再次请求，请另寻办法。",
    "tool.denied.confirm_failed": "[ToolError] “{name}”没有执行：请求批准时失败（{failure}）。",
    "tool.denied.cost": "[ToolError] “{name}”没有执行：估计费用 {estimate} 超过剩余额度（{left}），且没有得到批准。",
    "tool.denied.fork": "[ToolError] “{name}”有副作用，而本次运行是录制运行的分叉，因此没有执行。",
    "tool.denied.masked": "[ToolError] “{name}”没有执行：参数中含有在所续录制中已被遮蔽的机密。",
    "tool.denied.calls": "[ToolError] “{name}”没有执行：一次运行中最多调用 {limit} 次，已经用完。请使用已有的信息。",
    "tool.unknown_outcome": (
        "[ToolError] “{name}”之前以同样的参数启动过，但没有完成。不知道是否已经生效，因此没有再次执行。请用只读工具检查。"
    ),
    "tool.conflict": "[ToolError] “{name}”之前以同一个键但不同的参数调用过，因此没有执行。",
    "tool.duplicate": "[Duplicate] “{name}”已经以同样的参数执行过，没有再次执行。当时的结果：{text}",
    "ignored": "[FormatError] 只执行了第一个动作。已忽略：{names}。请一次只发一个动作。",
    "guard.answered": "[LoopGuard] 你刚刚以同样的参数调用过“{name}”（第 {step} 步），没有再次执行。{again}当时的结果：{text}",
    "guard.answered.again": "如果它每次给出的内容不同（例如下一页），请再发送一次同样的调用，它就会被执行。",
    "guard.warned.again": "[LoopGuard] “{name}”在第 {step} 步已经给出过同样的结果。重复不会有新信息：请利用已有的信息、换个思路，或结束。",
    "guard.warned.cycle": "[LoopGuard] 最近 {period} 个动作（{calls}）在重复之前做过的事（从第 {step} 步起），结果也相同。请换个思路，或结束。",
    "finish.refused": "[FinishRefused] 答案没有被接受：{reason}。请改正后再次结束。",
    "cut": "\n[... 此处省略 {cut} 个字符，共 {total} 个{rest} ...]\n",
    "cut.rest": '；可用 read_range(handle="{handle}", start={start}) 继续读取',
    "read_range.description": "读取被截断的长观察的一部分：从 start 起的 length 个字符。",
}

CATALOGUES: dict[str, dict[str, str]] = {"en": _EN, "zh": _ZH}


def replacement_problem(key: str, template: str) -> str | None:
    """Why a template cannot stand for the text under `key`, or None. What passes here can be filled in at any time."""
    if key not in _EN:
        return f"unknown key {key!r}; the keys are {', '.join(sorted(_EN))}"
    known = _placeholders(_EN[key])
    try:
        used = _placeholders(template)
    except (ValueError, TypeError) as error:
        return f"{key!r} is no template: {error}; a plain brace is written twice"
    if unknown := sorted(used - known):
        named = ", ".join(f"{{{name}}}" for name in sorted(known)) or "no placeholder"
        return f"{key!r} uses {{{unknown[0]}}}; it may use {named}, and a plain brace is written twice"
    return None


def _placeholders(template: str) -> set[str]:
    """The fields of a template, each with what is written after its name, so that `{name!r:>9}` is not `{name}`."""
    found = set()
    for _, name, spec, conversion in string.Formatter().parse(template):
        if name is not None:
            found.add(name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else ""))
    return found


class Texts:
    """The catalogue of one language with a user's replacements laid over it."""

    __slots__ = ("_texts", "language")

    def __init__(self, language: str = "en", replaced: Mapping[str, str] | None = None) -> None:
        if language not in CATALOGUES:
            raise ConfigError(f"language {language!r} is unknown; choose one of {', '.join(sorted(CATALOGUES))}")
        for key, template in (replaced or {}).items():
            if (problem := replacement_problem(key, template)) is not None:
                raise ConfigError(f"texts: {problem}")
        self.language = language
        self._texts = {**CATALOGUES[language], **(replaced or {})}

    def say(self, key: str, **values: object) -> str:
        """The text under `key` with its placeholders filled in."""
        return self._texts[key].format(**values)


@lru_cache(maxsize=8)
def _plain(language: str) -> Texts:
    return Texts(language)


def texts_for(language: str, replaced: Mapping[str, str]) -> Texts:
    """A catalogue; the unreplaced ones are built once."""
    return Texts(language, replaced) if replaced else _plain(language)
