"""Rows of Parquet files, read one piece of a row group after another.

pyarrow's dataset scanner is not used: it decodes whole row groups and several at a time, so that memory grows with the
row groups. `ParquetFile.iter_batches` with a small read buffer decodes one page of each column at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from typing import Any, NamedTuple

from cavity.data.schema import CATEGORY, DATE, NUMBER, TIME, CategoricalFeatures
from cavity.data.source import block_rows, permuted
from cavity.data.tables import (
    Columns,
    File,
    Given,
    Names,
    TableFiles,
    TableSource,
    arrow,
    choose_columns,
    column_type,
    contents,
    split_evenly,
)

BUFFER_BYTES = 2**16  # of a column read at a time; by default a row group is read whole
PAGE_BYTES, PAGE_ROWS = 2**20, 20_000  # of a column at most, as most writers have them
PIECE_ROWS = 65_536  # in a piece of a row group at least, where there are enough rows for all lanes
PIECES_PER_LANE = 4  # at least, for lanes of nearly equal size, where row groups allow it
PIECES_PER_GROUP = 8  # at most: all rows of the group before a piece must be decoded to reach it
LANES, READ_BYTES = (8, 4, 2), 2**25  # the most lanes that hold no more than this while all are read at once
KINDS = {NUMBER: "numbers", CATEGORY: "a category", DATE: "dates", TIME: "times"}  # in messages
CHANGED = "the file has changed since the source was created; create it again"


class Piece(NamedTuple):
    """Consecutive rows of a row group."""

    file: int  # index of the file
    group: int  # index of its row group
    offset: int  # number of rows before them in the group
    n_rows: int
    start: int  # number of rows before them in the file
    group_rows: int  # rows of the group


class ParquetFiles(TableFiles):
    """Parquet files with the same columns."""

    endings = (".parquet", ".pq")

    def __init__(self, given: Given, name: str | None = None) -> None:
        super().__init__(given, name)
        self.metadata, self.schemas = list[Any](), list[Any]()
        for file in self.files:
            with open_parquet(file) as found:
                self.metadata.append(found.metadata)
                self.schemas.append(found.schema_arrow)

    def schema(self) -> Any:
        """Return the Arrow schema of the first file; a type of no values is that of the next file with some."""
        first, *others = self.schemas
        for name in (field.name for field in first if arrow().types.is_null(field.type)):
            typed = (one.field(name) for one in others if len(one.get_all_field_indices(name)) == 1)
            field = next((field for field in typed if not arrow().types.is_null(field.type)), None)
            if field is not None:
                first = first.set(first.get_field_index(name), field)
        return first

    def batches(self, features: Sequence[str], others: Sequence[str], categories: Sequence[str] = ()) -> Iterator[Any]:
        names = list(dict.fromkeys([*features, *others]))
        for file in self.files:
            with open_parquet(file) as found:
                for name in names:
                    column_type(found.schema_arrow, name, file.name)
                yield from found.iter_batches(block_rows(len(features), 1), columns=names)

    def count_rows(self) -> int:
        return sum(one.num_rows for one in self.metadata)

    def n_bytes(self) -> int:
        return sum(8 * one.num_rows * len(types) for one, types in zip(self.metadata, self.schemas, strict=True))

    def source(
        self,
        target: str | None,
        features: Sequence[str],
        categorical_features: CategoricalFeatures = "from_dtype",
    ) -> Parquet:
        return Parquet(self.files, target, features, categorical_features=categorical_features)

    def _read_file(self, file: File, names: Names, target: str | None, categories: Sequence[str]) -> Any:
        with open_parquet(file) as found:
            return found.read(names)


class Parquet(TableSource):
    """Rows of Parquet files.

    Only the columns in use are read, some thousand rows at a time, so memory does not grow with the files. Training
    shuffles pieces first (a row group, or an eighth of a large one); their rows then pass through a shuffle buffer.

    Args:
        path: a file, a folder of `.parquet` and `.pq` files, a pattern, or a list of these.
        target: the label column, of any type; None for prediction.
        features: the columns of X, in order; by default all but the target and those that hold lists, bytes and the
            like, which the attribute `ignored` lists.
        lanes: number of parts of the rows, and so the largest number of workers that can share them. By default 8, and
            4 or 2 where reading 8 parts at once would take much memory, as for many columns of real numbers.
        categorical_features: which columns are categories: "from_dtype" (text, dictionaries and booleans), None, or
            a mask, places or names. `survey` finds their levels; until then their cells are NaN.

    >>> import tempfile, pyarrow, pyarrow.parquet
    >>> folder = tempfile.mkdtemp()
    >>> flights = {"distance": [300.0, 1200.0, 640.0], "carrier": ["X", "Y", "X"], "delay": ["none", "short", "none"]}
    >>> pyarrow.parquet.write_table(pyarrow.table(flights), f"{folder}/part-0.parquet")
    >>> source = Parquet(folder, target="delay", lanes=2)
    >>> [(column.name, column.kind) for column in source.schema.columns]
    [('distance', 'number'), ('carrier', 'category')]
    >>> [block.y.tolist() for lane in range(source.lanes) for block in source.blocks(lane)]
    [['none'], ['short', 'none']]
    """

    def __init__(
        self,
        path: Given,
        target: str | None = None,
        features: Names = None,
        lanes: int | None = None,
        *,
        categorical_features: CategoricalFeatures = "from_dtype",
    ) -> None:
        table = ParquetFiles(path)
        super().__init__("parquet", table, target, features, categorical_features)
        first = table.schema()
        for file, schema in zip(self._files, table.schemas, strict=True):
            own = choose_columns(schema, file.name, target, self.feature_names, categorical=categorical_features)
            self._check_kinds(own, schema, file)
            kinds = [contents(column_type(one, target, file.name)) for one in (schema, first) if target]
            if len(set(kinds)) > 1:
                raise ValueError(f"{file.name}: the target {target!r} must have one type in all files, got {kinds[0]}, "
                                 f"but {kinds[1]} in {table.name}")  # fmt: skip
        if lanes is None:
            held = read_bytes(table.metadata[0], self._columns.names)
            lanes = next((n for n in LANES if n * held <= READ_BYTES), LANES[-1])
        counts = [[one.row_group(k).num_rows for k in range(one.num_row_groups)] for one in table.metadata]
        pieces = split_groups(counts, lanes)
        parts = split_evenly([piece.n_rows for piece in pieces], lanes)
        self._pieces = [[pieces[i] for i in part] for part in parts]
        self._file_rows = [one.num_rows for one in table.metadata]
        self.lanes = len(self._pieces)

    def batches(self, lane: int, seed: int | None, names: list[str]) -> Iterator[tuple[Any, int, File, int]]:
        pieces = self._pieces[lane]
        if seed is None:  # pieces of a row group that follow each other are read as one
            groups = [list(group) for _, group in groupby(pieces, key=lambda piece: (piece.file, piece.group))]
            pieces = [group[0]._replace(n_rows=sum(piece.n_rows for piece in group)) for group in groups]
        firsts = accumulate((piece.n_rows for piece in pieces), initial=0)
        order = permuted(list(zip(pieces, firsts, strict=False)), seed)
        for k, mine in groupby(order, key=lambda item: item[0].file):
            with open_parquet(self._files[k]) as file:
                for piece, first in mine:
                    yield from self._piece_batches(file, piece, first, names)

    def fingerprint(self) -> dict[str, Any]:
        found = super().fingerprint()
        for facts, n in zip(found["files"], self._file_rows, strict=True):
            facts["rows"] = n
        return found

    def _check_kinds(self, own: Columns, types: Any, file: File) -> None:
        """Raise ValueError if a column of a file holds something else than in the first file."""
        for j, name in enumerate(self.feature_names):
            kind, first = (NUMBER if one.schema is None else one.schema.columns[j].kind for one in (own, self._columns))
            found = contents(column_type(types, name, file.name))
            if kind != first and found != "no values":
                raise ValueError(
                    f"{file.name}: feature {name!r} must hold {KINDS[first]}, as in {self._table.name}, got {found}; "
                    "convert it, or name it in categorical_features"
                )

    def _piece_batches(
        self, opened: Any, piece: Piece, first: int, names: list[str]
    ) -> Iterator[tuple[Any, int, File, int]]:
        """Read the rows of a piece; those before it in the row group are decoded and dropped."""
        file, groups = self._files[piece.file], opened.metadata
        if piece.group >= groups.num_row_groups or groups.row_group(piece.group).num_rows != piece.group_rows:
            raise ValueError(f"{file.name}: row group {piece.group} no longer has {piece.group_rows} rows; {CHANGED}")
        size, skipped, done = block_rows(self.n_features, self.lanes), 0, 0
        try:
            for batch in opened.iter_batches(size, [piece.group], names, use_threads=False):
                drop = min(piece.offset - skipped, batch.num_rows)
                part = batch.slice(drop, piece.n_rows - done)
                if part.num_rows:
                    yield part, first + done, file, piece.start + done
                skipped, done = skipped + drop, done + part.num_rows
                if done == piece.n_rows:
                    return
        except arrow().ArrowException as error:
            raise ValueError(f"{file.name}: {error}; {CHANGED}") from error


def open_parquet(file: File) -> Any:
    """Open a file with a small read buffer."""
    try:
        return arrow("pyarrow.parquet").ParquetFile(file.path, pre_buffer=False, buffer_size=BUFFER_BYTES)
    except arrow().ArrowInvalid as error:
        raise ValueError(f"{file.name} is not a Parquet file ({error})") from None


def read_bytes(metadata: Any, names: Sequence[str]) -> int:
    """Estimate the memory for reading columns of the largest row group: a page and the dictionary of each, twice."""
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    total, largest = 0, max(groups, key=lambda group: group.total_byte_size, default=None)
    for column in [] if largest is None else [largest.column(j) for j in range(largest.num_columns)]:
        if column.path_in_schema in names:
            total += min(PAGE_BYTES, column.total_uncompressed_size * PAGE_ROWS // max(column.num_values, PAGE_ROWS))
            if column.has_dictionary_page:
                total += column.data_page_offset - column.dictionary_page_offset
    return 2 * total  # compressed and decompressed


def split_groups(counts: Sequence[Sequence[int]], lanes: int) -> list[Piece]:
    """Split all row groups, given the rows of each in each file, into pieces, so that there are enough for all lanes.

    >>> [piece.n_rows for piece in split_groups([[5, 0, 3]], lanes=1)]
    [1, 2, 2, 1, 2]
    """
    least = max(1, min(PIECE_ROWS, sum(map(sum, counts)) // (PIECES_PER_LANE * max(lanes, 1))))
    pieces = list[Piece]()
    for file, groups in enumerate(counts):
        for group, (n, before) in enumerate(zip(groups, accumulate(groups, initial=0), strict=False)):
            parts = min(PIECES_PER_GROUP, -(-n // least))
            cuts = [n * k // parts for k in range(parts + 1)] if n else []
            pieces += [Piece(file, group, start, end - start, before + start, n) for start, end in pairwise(cuts)]
    return pieces
