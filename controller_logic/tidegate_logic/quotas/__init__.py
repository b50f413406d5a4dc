"""From what is wanted to the writes of one pass: steps, removals, the write budget, the ledger."""
