"""The median time of `decide()` in the benchmark's world, everything new: 50 brokers, 20,000
partitions, 5000 entities. Run as `python -m tests.house.decide_time`; it prints a line of JSON.
"""

import json
from statistics import median

from bench.control.core import observation, timed
from tidegate.main import tune_collector

if __name__ == "__main__":
    tune_collector()  # garbage is collected as rarely as in the operator
    _, seconds = timed(observation())
    print(json.dumps({"milliseconds": round(median(seconds) * 1000, 1), "rounds": len(seconds)}))
