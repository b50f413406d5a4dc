"""How far a rollup has come, on a terminal: a bar for each thing that is counted, below the sentences. Elsewhere sentences say enough."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich import progress as rich_progress

from tidegate.commands.output import Page
from tidegate.rollup.samples import Progress, Step, unwatched


@contextmanager
def shown(page: Page) -> Iterator[Progress]:
    """Bars for as long as the block lasts; they stay as they are then, so that a run that was cut short shows how far it came."""
    if page.screen is None:
        yield unwatched
        return
    columns = (rich_progress.BarColumn(), rich_progress.MofNCompleteColumn(), rich_progress.TextColumn("{task.description}"))
    with rich_progress.Progress(*columns, rich_progress.TimeElapsedColumn(), console=page.screen, redirect_stdout=False) as bars:
        yield _Bars(bars)


class _Bars:
    """A bar comes when its step is first told of."""

    def __init__(self, bars: rich_progress.Progress) -> None:
        self._bars = bars
        self._tasks: dict[Step, rich_progress.TaskID] = {}

    def __call__(self, step: Step, done: int, of: int) -> None:
        if step not in self._tasks:
            self._tasks[step] = self._bars.add_task(step.value)
        self._bars.update(self._tasks[step], completed=done, total=of)
