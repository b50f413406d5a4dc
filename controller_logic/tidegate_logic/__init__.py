"""The whole brain of Tidegate: pure functions over frozen dataclasses, standard library only.

Nothing here reads a clock, a network, a file or chance: time and every reading come in as values,
so that the same observation and memory always give the same decision, and any episode can be played
again.
"""
