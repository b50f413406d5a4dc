"""From contracts to a quota for each broker: leaders, overrides, scaling, and advice."""
