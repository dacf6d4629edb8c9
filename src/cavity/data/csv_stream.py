"""CSV files as streams of batches, with the row and column of what cannot be read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, NamedTuple

from cavity.data.arrow import arrow
from cavity.data.files import File

BLOCK_BYTES = 2**20


class Stream(NamedTuple):
    """How files are read.

    Attributes:
        delimiter: what stands between two columns.
        types: the columns to read with their types; where it is empty all are read, and types are guessed.
    """

    delimiter: str
    types: dict[str, Any]

    def batches(self, file: File) -> Iterator[Any]:
        """The rows of a file, a megabyte of text at a time."""
        if file.path.stat().st_size == 0:
            return
        try:
            with self._opened(file, self.types) as stream:
                yield from (batch for batch in stream if batch.num_rows)
        except arrow().ArrowKeyError:
            raise ValueError(f"{file.name}: there is no column {self._lacking(file)}; it is needed") from None
        except arrow().ArrowInvalid as error:
            raise ValueError(f"{self._bad_cell(file) or file.name}: {error}") from None

    def _opened(self, file: File, types: dict[str, Any]) -> Any:
        csv = arrow("pyarrow.csv")
        return csv.open_csv(
            file.path,
            csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
            csv.ParseOptions(delimiter=self.delimiter),
            csv.ConvertOptions(column_types=types, include_columns=list(types)),
        )

    def _lacking(self, file: File) -> str:
        with self._opened(file, {}) as stream:
            return ", ".join(repr(name) for name in self.types if name not in stream.schema.names)

    def _bad_cell(self, file: File) -> str | None:
        """Where the first cell is that is not of the type of its column; None where something else is wrong."""
        pa, done = arrow(), 0
        try:
            with self._opened(file, dict.fromkeys(self.types, pa.string())) as stream:
                for batch in stream:
                    found = [(_first_unlike(batch.column(name), kind), name) for name, kind in self.types.items()]
                    if (first := min(found))[0] < batch.num_rows:
                        return f"{file.name}, row {done + first[0]}, column {first[1]!r}"
                    done += batch.num_rows
        except (pa.ArrowInvalid, ValueError):
            pass
        return None


def _first_unlike(cells: Any, kind: Any) -> int:
    """Place of the first cell that is not of this type; the number of cells where all are."""
    pc = arrow("pyarrow.compute")
    cells = pc.utf8_trim_whitespace(cells)
    nothing = arrow().array(arrow("pyarrow.csv").ConvertOptions().null_values)
    cells = pc.if_else(pc.is_in(cells, value_set=nothing), None, cells)
    return bisect_left(range(len(cells)), True, key=lambda i: not _casts(cells[: i + 1], kind))


def _casts(cells: Any, kind: Any) -> bool:
    try:
        cells.cast(kind)
    except arrow().ArrowInvalid:
        return False
    return True
