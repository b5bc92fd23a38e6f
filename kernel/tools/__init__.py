"""Tools: what they are, how their arguments are checked, and how a call is run, timed out, isolated and booked.

May import `record` and `stores`; never the loop.
"""

from typing import TYPE_CHECKING

from kernel.door import door

if TYPE_CHECKING:
    from kernel.tools.builtin import read_range, read_range_tool
    from kernel.tools.execute import LiveTools
    from kernel.tools.isolate import DIED
    from kernel.tools.registry import Tool, ToolRegistry, compiled_schema
    from kernel.tools.schema import Violation
    from kernel.tools.violation import ABSENT
else:
    __getattr__ = door(
        __name__,
        builtin="read_range read_range_tool",
        execute="LiveTools",
        isolate="DIED",
        registry="Tool ToolRegistry compiled_schema",
        schema="Violation",
        violation="ABSENT",
    )
