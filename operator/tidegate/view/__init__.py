"""What is now: one policy's brokers, levels and members, as the console and `tidegate top` show
them. Pure: from objects, readings and decisions to values; nothing is read or written here.
"""
