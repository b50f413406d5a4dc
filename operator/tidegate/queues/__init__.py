"""What the operator and the forwarders of a DelayQueue agree on: names and positions."""
