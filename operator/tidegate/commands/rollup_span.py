"""Which time a rollup on a laptop is for: the whole hours asked for, and with `--running` what is over of the hour under way."""

from tidegate.errors import InvalidResource

_FIVE_MINUTES_MS, _HOUR_MS = 300_000, 3_600_000


def span_between(start_ms: int, end_ms: int, *, now_ms: int, running: bool) -> tuple[int, int]:
    """[start, end) in milliseconds: from a whole hour to a whole one, or with `running` to a window of 5 minutes that is over now.

    Only the hour under way is ever cut, and never at another time than now: publishing an hour as far as an earlier time would take rows
    out of the tables. Raises InvalidResource where nothing is over between the two.
    """
    first_ms, last_ms = start_ms - start_ms % _HOUR_MS, end_ms - end_ms % _HOUR_MS
    this_hour_ms = now_ms - now_ms % _HOUR_MS
    if running and end_ms > this_hour_ms:
        last_ms = now_ms - now_ms % _FIVE_MINUTES_MS
    if first_ms >= last_ms:
        raise InvalidResource(_nothing_over(running=running))
    return first_ms, last_ms


def span_words(start_ms: int, end_ms: int) -> str:
    """`3 hours`, or `3 hours and 25 minutes of the one under way`."""
    hours, rest_ms = divmod(end_ms - start_ms, _HOUR_MS)
    return f"{hours} hours" + (f" and {rest_ms // 60_000} minutes of the one under way" if rest_ms else "")


def _nothing_over(*, running: bool) -> str:
    if running:
        return "No window of 5 minutes is over between --from and --to, so nothing was rolled up. Ask for an earlier time, or again later."
    return (
        "There is no whole hour between --from and --to, so nothing was rolled up. Ask for an hour that is over, or for the one under way "
        "with --running."
    )
