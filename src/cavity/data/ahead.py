"""Reading ahead: an iterator that works in a thread of its own."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from queue import Empty, Queue
from threading import Event, Thread
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class _End(NamedTuple):
    """There are no more items; because of `error`, if there was one."""

    error: BaseException | None = None


def ahead(items: Iterable[T], depth: int = 4) -> Generator[T, None, None]:
    """The same items, up to `depth` of them made ahead by a thread.

    What goes wrong there is raised here. When the reader stops, early or not, the thread ends; a generator is closed.

    >>> list(ahead(x * x for x in range(5)))
    [0, 1, 4, 9, 16]
    """
    box: Queue[Any] = Queue(depth)
    stop = Event()
    thread = Thread(target=_fill, args=(items, box, stop), name="cavity-ahead", daemon=True)
    thread.start()
    try:
        while not isinstance(item := box.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stop.set()
        _empty(box)  # a full box would keep the thread waiting
        thread.join()


def _fill(items: Iterable[Any], box: Queue[Any], stop: Event) -> None:
    end = _End()
    try:
        _pass_on(items, box, stop)
    except BaseException as error:  # the reader decides what to do about it
        end = _End(error)
    if not stop.is_set():
        box.put(end)


def _pass_on(items: Iterable[Any], box: Queue[Any], stop: Event) -> None:
    try:
        for item in items:
            box.put(item)
            if stop.is_set():
                return
    finally:
        if isinstance(items, Generator):
            items.close()  # here, where it runs


def _empty(box: Queue[Any]) -> None:
    try:
        while True:
            box.get_nowait()
    except Empty:
        pass
