"""Raw measurements kept beside the figures: one CSV a run, a line for each second and client, in kilobytes. It computes nothing."""

import csv
from pathlib import Path

from bench.tide.played import Played

FOLDER = Path("docs/measurements")


def keep(played: Played, name: str) -> None:
    """Write docs/measurements/<name>.csv: seconds from the lowered limit, who (client, `NIC`, or `quota <user>`), kilobytes per second."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    begin = int(played.limited_at_seconds) - 10
    seconds = int(played.ended_seconds) - begin
    series = {**{business.level: moved for business, moved in played.businesses.items()}, "nic": played.nic}
    with (FOLDER / f"{name}.csv").open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(["second", "who", "kilobytes_per_second"])
        for who, moved in series.items():
            rows.writerows([second - 10, who, round(rate / 1000)] for second, rate in enumerate(moved.per_second(begin, seconds)))
        for write in played.writes:
            if write.after is not None and write.at_seconds >= begin:
                rows.writerow([round(write.at_seconds - begin - 10, 1), f"quota {write.user}", write.after // 1000])
