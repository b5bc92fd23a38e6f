"""The trace: a run as spans and back, its seals, the journal that becomes the trace file.

May import `record`, `masking`, `loop` (the pure functions that derive what is masked) and the seams; sinks of `export` are loaded when
they are asked for.
"""
