"""The state of one policy now: its brokers, levels and members, for the console and `tidegate top`.

Pure: values from objects, readings and statuses. Nothing is read or written here.
"""
