"""Row groups of Parquet files: what is in them, the pieces they are read in, and the reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from cavity.data.arrow import arrow
from cavity.data.files import File

BUFFER_BYTES = 2**16  # a column is read that much at a time; by default a row group is read whole
PAGE_BYTES, PAGE_ROWS = 2**20, 20_000  # of a column at most, as most writers have them
PIECE_ROWS = 65_536  # in a piece of a row group at least, where there are enough rows for all lanes
CHANGED = "the file has changed since the source was made: make it anew"
PER_LANE = 4  # pieces at least, for lanes of nearly equal size, where row groups allow for it
PIECES = 8  # of a row group at most: what lies before one must be decoded to get there


class Facts(NamedTuple):
    """What the footer of a file tells.

    Attributes:
        schema: its columns.
        counts: rows in each row group.
        held: about how many bytes are held of each column while the largest row group is read.
    """

    schema: Any
    counts: list[int]
    held: dict[str, int]


class Piece(NamedTuple):
    """Rows of a row group that follow each other.

    Attributes:
        file: which file.
        group: which of its row groups.
        offset: how many rows of the group precede them.
        n_rows: how many they are.
        start: how many rows of the file precede them.
        group_rows: how many the group has.
    """

    file: int
    group: int
    offset: int
    n_rows: int
    start: int
    group_rows: int

    def precedes(self, other: Piece) -> bool:
        """Whether the other one goes on where this one ends."""
        return (other.file, other.group, other.offset) == (self.file, self.group, self.offset + self.n_rows)


def opened(file: File) -> Any:
    """The file, which must be Parquet."""
    try:
        return arrow("pyarrow.parquet").ParquetFile(file.path, pre_buffer=False, buffer_size=BUFFER_BYTES)
    except arrow().ArrowInvalid as error:
        raise ValueError(f"{file.name} cannot be read as Parquet ({error})") from None


def facts(file: File) -> Facts:
    """Read the footer of a file."""
    with opened(file) as found:
        groups = [found.metadata.row_group(k) for k in range(found.metadata.num_row_groups)]
        largest = max(groups, key=lambda group: group.total_byte_size, default=None)
        columns = [] if largest is None else [largest.column(j) for j in range(largest.num_columns)]
        held = {column.path_in_schema: _held(column) for column in columns}
        return Facts(found.schema_arrow, [group.num_rows for group in groups], held)


def _held(column: Any) -> int:
    """A page and the dictionary, each packed and unpacked."""
    page = min(PAGE_BYTES, column.total_uncompressed_size * PAGE_ROWS // max(column.num_values, PAGE_ROWS))
    dictionary = column.data_page_offset - column.dictionary_page_offset if column.has_dictionary_page else 0
    return 2 * (page + dictionary)


def pieces(counts: Sequence[Sequence[int]], lanes: int) -> list[Piece]:
    """All rows of all files as stored, large row groups in several pieces, and enough pieces for all lanes.

    Args:
        counts: rows of each row group of each file.
        lanes: how many there should be.

    >>> [piece.n_rows for piece in pieces([[5, 0, 3]], lanes=1)]
    [1, 2, 2, 1, 2]
    """
    least = max(1, min(PIECE_ROWS, sum(map(sum, counts)) // (PER_LANE * max(lanes, 1))))
    found = list[Piece]()
    for file, groups in enumerate(counts):
        for group, (n, before) in enumerate(zip(groups, accumulate(groups, initial=0), strict=False)):
            parts = min(PIECES, -(-n // least))
            cuts = [n * k // parts for k in range(parts + 1)] if n else []
            found += [Piece(file, group, start, end - start, before + start, n) for start, end in pairwise(cuts)]
    return found


def merged(found: Sequence[Piece]) -> list[Piece]:
    """Pieces that follow each other in a row group as one."""
    out = list[Piece]()
    for piece in found:
        if out and out[-1].precedes(piece):
            out[-1] = out[-1]._replace(n_rows=out[-1].n_rows + piece.n_rows)
        else:
            out.append(piece)
    return out


class Reader:
    """Reads pieces of several files, of which it keeps one open.

    Args:
        files: all of them.
        names: the columns to read.
        size: rows to read at a time.
    """

    def __init__(self, files: list[File], names: list[str], size: int) -> None:
        self._files, self._names, self._size = files, names, size
        self._open: Any = None
        self._at = (-1, -1, -1)  # file, row group, row in it
        self._stream: Iterator[Any] = iter(())
        self._left: Any = None  # of a batch that reaches beyond a piece

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        if self._open is not None:
            self._open.close()

    def batches(self, piece: Piece) -> Iterator[Any]:
        """The rows of a piece; where it follows the one before, reading goes on."""
        try:
            if self._at != (piece.file, piece.group, piece.offset):
                self._begin(piece)
                for _ in self._next(piece.offset):
                    pass
            yield from self._next(piece.n_rows)
        except arrow().ArrowException as error:
            raise ValueError(f"{self._files[piece.file].name}: {error}; {CHANGED}") from error
        self._at = (piece.file, piece.group, piece.offset + piece.n_rows)

    def _begin(self, piece: Piece) -> None:
        """Go to the start of a row group."""
        if piece.file != self._at[0]:
            self.__exit__()
            self._open = opened(self._files[piece.file])
        self._at, self._left = (piece.file, piece.group, 0), None
        counted = self._open.metadata
        if piece.group >= counted.num_row_groups or counted.row_group(piece.group).num_rows != piece.group_rows:
            raise ValueError(f"{self._files[piece.file].name}: row group {piece.group} does not hold "
                             f"{piece.group_rows} rows any more; {CHANGED}")  # fmt: skip
        self._stream = self._open.iter_batches(self._size, [piece.group], self._names, use_threads=False)

    def _next(self, n_rows: int) -> Iterator[Any]:
        """So many rows of the row group."""
        while n_rows > 0:
            batch = next(self._stream) if self._left is None else self._left
            self._left = batch.slice(n_rows) if batch.num_rows > n_rows else None
            batch = batch.slice(0, n_rows)
            n_rows -= batch.num_rows
            yield batch
