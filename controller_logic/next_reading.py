"""When it is worth reading again: soon after a card's next sample should be there, so that nothing is decided a whole scrape later."""

from controller_logic.readings import Readings

_STORED_AFTER_SECONDS = 1.0  # from a scrape until its samples can be asked for


def seconds_until_next_reading(readings: Readings, *, shortest_seconds: float, now_seconds: float) -> float:
    """Between `shortest_seconds` and one scrape interval (or the shortest, if that is longer).

    The scrapes of several brokers differ in phase: the next one counts. A card that is a whole scrape overdue is not waited for.
    """
    scrape_seconds = readings.scrape_seconds
    longest_seconds = max(shortest_seconds, scrape_seconds)
    due = [spans[-1].at_seconds + scrape_seconds + _STORED_AFTER_SECONDS - now_seconds for spans in readings.nic.values() if spans]
    soonest = min([seconds for seconds in due if seconds > -scrape_seconds], default=longest_seconds)
    return min(max(soonest, shortest_seconds), longest_seconds)
