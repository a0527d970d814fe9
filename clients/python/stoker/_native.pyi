"""The types of the native module; its documentation is in the Python modules that use it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

__version__: str

class PackRequest(TypedDict):
    columns: list[str]
    length: int
    lengths: str | None
    pad: int

class BucketRequest(TypedDict):
    column: str
    max_tokens: int
    max_rows: int | None
    multiple: int
    longer: str

class StreamRequest(TypedDict):
    seed: int
    shuffle: str
    shuffle_window_bytes: int | None
    block_bytes: int | None
    num_lanes: int | None
    order_version: int | None
    weight: str | None
    pack: PackRequest | None
    bucket: BucketRequest | None
    weights: list[float] | None
    stop: str
    epoch_rows: int
    run_id: str | None

class JitterRequest(TypedDict):
    brightness: tuple[float, float]
    contrast: tuple[float, float]
    saturation: tuple[float, float]
    hue: tuple[float, float]

class TransformRequest(TypedDict):
    height: int
    width: int
    fit: str
    crop: str
    shorter_side: int | None
    random_resized_crop: tuple[tuple[float, float], tuple[float, float]] | None
    horizontal_flip: float
    channels: int
    layout: str
    dtype: str
    mean: Sequence[float] | None
    std: Sequence[float] | None
    interpolation: str
    fill: int
    apply_orientation: bool
    rotation: tuple[float, float]
    color_jitter: JitterRequest | None
    samples: str
    crops: int | None
    images: int | None
    matrix: bool
    follow: str | None
    image_bytes_max: int | None
    jpeg: str
    libraries: Sequence[str]

class TokenRequest(TypedDict):
    length: int | None
    tokens_max: int | None
    truncate: bool
    truncate_side: str
    pad: int | str | None
    pad_side: str
    add_special_tokens: bool
    dtype: str
    bytes_max: int | None

class DecoderRequest(TypedDict):
    decoder: object
    shape: Sequence[int | None]
    dtype: str

class AudioRequest(TypedDict):
    sample_rate: int
    seconds: float
    start: str
    start_seconds: float
    start_column: str
    channels: int
    bytes_max: int | None
    libraries: Sequence[str]

class VideoRequest(TypedDict):
    frames: int
    stride: int
    start: str
    start_seconds: float
    start_column: str
    offsets: Sequence[float] | None
    within: tuple[str, str] | None
    size: tuple[int, int]
    layout: str
    interpolation: str
    apply_orientation: bool
    pixels_max: int | None
    libraries: Sequence[str]

class DecodeRequest(TypedDict):
    columns: Sequence[tuple[str, str, object]]
    num_threads: int
    as_stored: Sequence[str]

class SessionRequest(TypedDict):
    rank: int
    world_size: int
    batch_size: int | None
    global_batch_size: int | None
    last_batch: str
    memory_budget_bytes: int | None
    bad_rows: str
    max_bad_share: float | None
    verify: bool
    retry_budget_secs: int | None
    compression: str | None
    run_id: str | None
    decode: DecodeRequest | None
    evaluation: bool
    any_order_version: bool

class WriteRequest(TypedDict):
    table: str
    mode: str
    rows_per_fragment_max: int | None
    page_bytes: int | None
    has_features: bool
    key: str | None
    is_repeatable: bool

class IngestSkipped(TypedDict):
    path: str
    row: int | None
    reason: str
    num_more: int

class IngestReport(TypedDict):
    kind: str
    version: int
    num_rows: int
    num_files: int
    bytes: int
    skipped: list[IngestSkipped]
    left_out: dict[str, int]
    num_known_files: int
    num_resumed_units: int
    already_ingested: bool

class IngestPreview(TypedDict):
    kind: str
    num_files: int
    bytes: int
    table_bytes: int
    skipped: list[IngestSkipped]
    left_out: dict[str, int]
    rows: ArrowArray

class ColumnRequest(TypedDict):
    table: str
    name: str
    mode: str
    inputs: list[str]
    has_predicate: bool
    data_type: str | None
    key: str
    page_bytes: int | None
    checkpoint_secs: float

class IndexRequest(TypedDict):
    table: str
    column: str
    kind: str
    name: str | None
    metric: str | None
    num_partitions: int | None
    num_sub_vectors: int | None

class ColumnShape(TypedDict):
    name: str
    kind: str
    dtype: str | None
    shape: tuple[int, ...]
    nulls: Literal["zero", "nan", "nat", "none"]
    small_float: str | None
    levels: int
    sizes: tuple[int | None, ...] | None
    axes: tuple[int, ...] | None
    names: tuple[str, ...] | None

class PaddingRequest(TypedDict):
    fill: bytes
    multiple: int
    length: int | None
    truncate: bool
    mask: bool

def column_shapes(schema: Any) -> list[ColumnShape]: ...
def is_change(sql: str) -> bool: ...
def main(args: Sequence[str]) -> int: ...
def numbered_params(sql: str) -> tuple[str, list[str]]: ...
def placeholders(sql: str) -> tuple[bool, int]: ...
def params_json(values: Sequence[Any]) -> str: ...
def read_tokenizer(path: str) -> str: ...
def check_decoder(kind: str, options: object) -> None: ...

class ArrowArray:
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __len__(self) -> int: ...

class ArrowSchema:
    def __arrow_c_schema__(self) -> object: ...

class BatchPlace:
    @property
    def stream_id(self) -> str: ...
    @property
    def step(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def num_valid(self) -> int: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def substituted(self) -> list[tuple[int, list[int], str]]: ...
    @property
    def row_tables(self) -> list[list[tuple[str, int]]]: ...
    @property
    def columns(self) -> list[str]: ...
    @property
    def masked(self) -> list[str]: ...
    @property
    def missing_masks(self) -> dict[str, str]: ...
    def masks(self) -> list[tuple[str, ArrowArray]]: ...
    def row_addrs(self) -> list[ArrowArray]: ...
    def sources(self, rows: Sequence[int]) -> list[int]: ...
    def row_position(self, row: int) -> int: ...
    def row_seeds(self) -> ArrowArray: ...

class Batch:
    @property
    def place(self) -> BatchPlace: ...
    @property
    def is_last(self) -> bool: ...
    @property
    def schema(self) -> ArrowSchema: ...
    def tensors(self) -> list[tuple[str, object | None, str | None]]: ...
    def numbers(self, index: int) -> ArrowArray | None: ...
    def ragged(self, index: int) -> tuple[list[ArrowArray], ArrowArray, ArrowArray | None]: ...
    def padded(
        self, index: int, padding: PaddingRequest, element_len: int, first_axis: int
    ) -> tuple[ArrowArray, list[int], ArrowArray, ArrowArray | None]: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

class TextTokenizer:
    def __init__(self, name: str, json: str, request: TokenRequest) -> None: ...
    @property
    def json(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def vocabulary_size(self) -> int: ...
    @property
    def pad_id(self) -> int | None: ...
    @property
    def identity(self) -> str: ...

class TableInfo:
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def schema(self) -> ArrowSchema: ...
    @property
    def tags(self) -> dict[str, int]: ...
    @property
    def size(self) -> tuple[int, int, int] | None: ...

class QueryResult:
    @property
    def schema(self) -> ArrowSchema: ...
    def next(self) -> ArrowArray | None: ...
    def close(self) -> None: ...

class StreamHandle:
    @property
    def stream_id(self) -> str: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def has_buckets(self) -> bool: ...
    @property
    def tables(self) -> list[tuple[str, int]]: ...
    @property
    def schema(self) -> ArrowSchema: ...
    def pinned_state(self) -> str: ...
    def nulls(self, columns: Sequence[str]) -> list[str]: ...

class Session:
    def __init__(self, connection: Connection, handle: StreamHandle, options: SessionRequest, epoch: int) -> None: ...
    @staticmethod
    def restored(connection: Connection, saved: Mapping[str, Any]) -> Session: ...
    def save(self) -> dict[str, Any]: ...
    @property
    def stream_id(self) -> str: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def snapshots(self) -> list[tuple[str, int]]: ...
    @property
    def schema(self) -> ArrowSchema: ...
    @property
    def weights(self) -> list[float] | None: ...
    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def has_equal_batches(self) -> bool: ...
    @property
    def last_batch(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def num_steps(self) -> int: ...
    @property
    def remaining(self) -> int: ...
    @property
    def open_streams(self) -> tuple[int | None, int | None]: ...
    def enter(self) -> int: ...
    def turn_of(self, pass_number: int) -> int | None: ...
    @property
    def turn(self) -> int: ...
    def next(self, turn: int) -> Batch | None: ...
    def finish(self, batch: Batch) -> None: ...
    def leave(self, pass_number: int, at_end: bool) -> None: ...
    def close(self) -> None: ...
    def state(self) -> dict[str, Any]: ...
    def load_state(self, state: str) -> None: ...
    def set_epoch(self, epoch: int) -> None: ...
    def restart(self) -> None: ...
    def skip(self, steps: int) -> int: ...
    def set_weights(self, weights: Sequence[float]) -> None: ...
    def narrow(self, worker: int, num_workers: int) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    def receipt(self) -> dict[str, Any]: ...
    def substituted(self) -> list[dict[str, Any]]: ...
    #: The batch that the loop got last; it can only be set.
    got: Batch

class ColumnWriter:
    def plan(self) -> tuple[int, int, int, list[tuple[int, int]]] | None: ...
    def write(self, rows: object) -> None: ...
    def commit(self) -> int | None: ...
    def forget(self) -> None: ...
    def close(self) -> None: ...

class Connection:
    def __init__(
        self,
        target: str,
        *,
        token: str | None = None,
        tls_ca: str | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        storage_options: dict[str, str] | None = None,
        retry_budget_secs: int | None = None,
        num_endpoints: int | None = None,
        memory_budget_bytes: int | None = None,
        cache_dir: str | None = None,
        cache_bytes: int | None = None,
        direct_io: bool = False,
        hold_days: int | None = None,
    ) -> None: ...
    def open(self) -> None: ...
    def is_local(self) -> bool: ...
    def tables(self) -> list[str]: ...
    def table(self, name: str, version: int | None = None, tag: str | None = None) -> TableInfo: ...
    def versions(self, name: str) -> list[dict[str, Any]]: ...
    def describe(self, name: str, version: int) -> list[dict[str, Any]]: ...
    def doctor(self, name: str, version: int) -> dict[str, Any]: ...
    def streams(self) -> list[dict[str, Any]]: ...
    def tag(self, name: str, version: int, tag: str) -> None: ...
    def check_sql(self, sql: str, values: Sequence[Any]) -> None: ...
    def sql(
        self, sql: str, values: Sequence[Any], compression: str | None = None, approximate: bool = False
    ) -> QueryResult: ...
    def explain(self, sql: str, values: Sequence[Any], approximate: bool = False) -> str: ...
    def plan_stream(self, queries: Sequence[tuple[str, Sequence[Any]]], request: StreamRequest) -> StreamHandle: ...
    def log_bad_rows(self, rows: Sequence[Mapping[str, Any]]) -> None: ...
    def run_entries(self, run_id: str) -> list[dict[str, Any]]: ...
    def replay_batch(self, run_id: str, step: int) -> Batch | None: ...
    def replay(self, run_id: str, step: int) -> tuple[StreamHandle, tuple[int, int, int, int, str]]: ...
    def row_addrs(self, stream_id: str, epoch: int, start: int, end: int) -> list[ArrowArray]: ...
    def load_stream(self, state: str) -> StreamHandle: ...
    def verify(self, receipts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]: ...
    def write(self, data: object, request: WriteRequest) -> int: ...
    def begin_column(self, request: ColumnRequest) -> ColumnWriter: ...
    def ingest(
        self, args: Sequence[str], dry_run: bool, progress: Callable[[dict[str, Any]], object] | None = None
    ) -> dict[str, Any]: ...
    def execute(
        self, sql: str, values: Sequence[Any], progress: Callable[[dict[str, Any]], object] | None = None
    ) -> dict[str, Any]: ...
    @staticmethod
    def index_statement(request: IndexRequest) -> str: ...
    def quarantine(self, name: str, row_addrs: Sequence[int], reason: str | None = None) -> int: ...
