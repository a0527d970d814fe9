//! Random cases.

use std::cmp::Reverse;

use proptest::prelude::*;
use proptest::sample::select;
use stoker::{Connection, StreamHandle};
use stoker_types::{
    BatchSize, Batching, Compression, LastBatch, ReadOptions, ShuffleMode, Slice, StreamOptions, Topology,
};

use crate::tests::contracts::kinds::{KindColumns, kind_columns};

/// The sizes of the tables: table `rows_n` has the ids `0..n`, in the order of their addresses.
pub const NUM_ROWS: [i64; 7] = [0, 1, 2, 7, 100, 1_000, 2_311];

/// The sizes of the tables with damaged bytes: table `damaged_n` is a copy of `rows_n`.
pub const DAMAGED_ROWS: [i64; 2] = [100, 1_000];

/// The most endpoints of a stream over Flight.
pub const ENDPOINTS_MAX: u32 = 3;

const WORLD_SIZE_MAX: u32 = 9;

/// About the most steps of an epoch; more steps take long and test nothing new.
const STEPS_MAX: u64 = 40;

/// About the most windows of an epoch, because all ranks read every window.
const WINDOWS_MAX: u64 = 10;

/// A little more than the bytes of a row, without the columns of other kinds.
const ROW_BYTES: u64 = 1_200;

/// A query, the options of its stream, and the ranks that read it.
#[derive(Clone, Debug)]
pub struct Case {
    pub query: Query,
    pub options: StreamOptions,
    pub job: Job,
    /// The number of endpoints over Flight.
    pub num_endpoints: u32,
}

/// A sample query whose rows are known.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    pub table_rows: i64,
    pub condition: Condition,
    pub filter: Filter,
    pub sorting: Sorting,
    /// Whether rows come as often as the column `weight` says.
    pub is_weighted: bool,
    /// The columns of other kinds that are selected.
    pub kinds: KindColumns,
}

/// The weights of rows, by `id % 5`.
pub const WEIGHTS: [f32; 5] = [0.0, 0.5, 1.0, 1.75, 3.0];

/// Whether the stored bytes of a table are as they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Sound,
    /// Some tensors of the table have a flipped bit.
    Damaged,
}

/// The rows of a table that a query selects.
#[derive(Clone, Copy, Debug)]
pub enum Filter {
    All,
    Nothing,
    Remainder { divisor: i64, remainder: i64 },
    Inside { start: i64, end: i64 },
    Outside { start: i64, end: i64 },
}

/// The order of a row set.
#[derive(Clone, Copy, Debug)]
pub enum Sorting {
    /// Ascending addresses, without an ORDER BY.
    Address,
    Descending,
    /// One after another, the seven classes of `id % 7`.
    Classes,
}

/// Ranks that read an epoch together, beginning at a position and a step.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub world_size: u32,
    pub batching: Batching,
    pub epoch: u64,
    pub origin: u64,
    pub first_step: u64,
    pub read: ReadOptions,
}

/// A job that is interrupted.
#[derive(Clone, Copy, Debug)]
pub struct Leg {
    /// The ranks; their epoch and origin are replaced by the end of the previous leg.
    pub job: Job,
    /// The number of batches of each rank before the interruption, if the epoch has that many.
    pub num_batches: u64,
    /// The number of ranks that are interrupted while they take one batch more.
    pub num_ahead: u32,
}

impl Case {
    pub async fn plan(&self, connection: &Connection) -> stoker::Result<StreamHandle> {
        let weight = self.query.is_weighted.then(|| "weight".to_string());
        let options = StreamOptions { weight, ..self.options.clone() };
        connection.plan_stream(&self.query.sql(), &[], &options).await
    }
}

impl Query {
    pub fn sql(&self) -> String {
        let weight = if self.is_weighted { ", weight" } else { "" };
        self.sql_of(&format!("x, id, label{weight}"))
    }

    /// Returns the query with other columns, beside those of other kinds.
    pub fn sql_of(&self, columns: &str) -> String {
        let kinds: String = self.kinds.iter().map(|column| format!(", {}", column.name)).collect();
        let filter = match self.filter {
            Filter::All => String::new(),
            Filter::Nothing => " WHERE id < 0".into(),
            Filter::Remainder { divisor, remainder } => format!(" WHERE id % {divisor} = {remainder}"),
            Filter::Inside { start, end } => format!(" WHERE id >= {start} AND id < {end}"),
            Filter::Outside { start, end } => format!(" WHERE id < {start} OR id >= {end}"),
        };
        let sorting = match self.sorting {
            Sorting::Address => "",
            Sorting::Descending => " ORDER BY id DESC",
            Sorting::Classes => " ORDER BY id % 7, id DESC",
        };
        format!("SELECT {columns}{kinds} FROM {}{filter}{sorting}", self.condition.table(self.table_rows))
    }

    /// Returns the ids of the selected rows, in the order of the row set.
    pub fn ids(&self) -> Vec<i64> {
        let mut ids: Vec<i64> = (0..self.table_rows).filter(|id| self.filter.takes(*id)).collect();
        match self.sorting {
            Sorting::Address => {}
            Sorting::Descending => ids.reverse(),
            Sorting::Classes => ids.sort_by_key(|id| (*id % 7, Reverse(*id))),
        }
        ids
    }

    /// Returns a little more than the bytes of a row.
    pub fn row_bytes(&self) -> u64 {
        ROW_BYTES + self.kinds.row_bytes()
    }
}

impl Query {
    /// Returns how often a row comes in an epoch, on average.
    pub fn weight(&self, id: i64) -> f32 {
        if self.is_weighted { WEIGHTS[id as usize % WEIGHTS.len()] } else { 1.0 }
    }

    /// Returns the number of rows in an epoch.
    pub fn epoch_rows(&self) -> u64 {
        self.ids().into_iter().map(|id| self.weight(id)).sum::<f32>() as u64
    }
}

impl Condition {
    /// Returns the name of a table.
    pub fn table(self, num_rows: i64) -> String {
        match self {
            Condition::Sound => format!("rows_{num_rows}"),
            Condition::Damaged => format!("damaged_{num_rows}"),
        }
    }
}

impl Filter {
    fn takes(self, id: i64) -> bool {
        match self {
            Filter::All => true,
            Filter::Nothing => false,
            Filter::Remainder { divisor, remainder } => id % divisor == remainder,
            Filter::Inside { start, end } => (start..end).contains(&id),
            Filter::Outside { start, end } => !(start..end).contains(&id),
        }
    }
}

impl Job {
    pub fn slice(&self, rank: u32) -> Slice {
        let topology = Topology { rank, world_size: self.world_size };
        let Self { origin, first_step, .. } = *self;
        Slice { origin, first_step, ..Slice::new(topology, self.batching, self.epoch) }
    }

    pub fn global_batch(&self) -> u64 {
        self.batching.global(self.world_size)
    }

    /// Returns a job with a single rank and the same global batches.
    pub fn alone(self) -> Self {
        let size = BatchSize::Global(self.global_batch());
        Self { world_size: 1, batching: Batching { size, ..self.batching }, ..self }
    }

    /// Returns a job with the same ranks that begins at a position, or at the next epoch if the position is the end.
    pub fn resume(self, epoch: u64, position: u64, num_rows: u64) -> Self {
        let (epoch, origin) = if position < num_rows { (epoch, position) } else { (epoch + 1, 0) };
        Self { epoch, origin, ..self }
    }

    /// Returns how many rows after the origin the policy drops.
    pub fn num_dropped(&self, num_rows: u64) -> u64 {
        match self.batching.last {
            LastBatch::Drop => (num_rows - self.origin) % self.global_batch(),
            LastBatch::Pad | LastBatch::Uneven => 0,
        }
    }
}

/// Any table, selection, order and job, from the start of an epoch.
pub fn case() -> impl Strategy<Value = Case> {
    case_of(query(NUM_ROWS.to_vec(), Condition::Sound))
}

/// As [`case`], over the damaged tables.
pub fn damaged_case() -> impl Strategy<Value = Case> {
    case_of(query(DAMAGED_ROWS.to_vec(), Condition::Damaged))
}

fn case_of(queries: impl Strategy<Value = Query>) -> impl Strategy<Value = Case> {
    let parts = queries.prop_flat_map(|query| {
        let table_rows = query.table_rows as u64;
        let options = options(table_rows, query.row_bytes());
        (Just(query), any::<bool>(), options, job(table_rows), 1..=ENDPOINTS_MAX)
    });
    parts.prop_map(|(query, is_weighted, options, job, num_endpoints)| {
        let weighted = Query { is_weighted, ..query };
        // Weights that add up to less than 1 are refused.
        let query = if weighted.epoch_rows() > 0 { weighted } else { query };
        Case { query, options, job, num_endpoints }
    })
}

/// Any selection from tables with these numbers of rows.
pub fn query(table_rows: Vec<i64>, condition: Condition) -> impl Strategy<Value = Query> {
    let sorting = || select(vec![Sorting::Address, Sorting::Address, Sorting::Descending, Sorting::Classes]);
    let parts = select(table_rows)
        .prop_flat_map(move |table_rows| (Just(table_rows), filter(table_rows), sorting(), kind_columns()));
    parts.prop_map(move |(table_rows, filter, sorting, kinds)| Query {
        table_rows,
        condition,
        filter,
        sorting,
        is_weighted: false,
        kinds,
    })
}

fn filter(table_rows: i64) -> impl Strategy<Value = Filter> {
    let range = || (0..=table_rows, 0..=table_rows);
    let remainder = (2..=9i64).prop_flat_map(|divisor| (Just(divisor), 0..divisor));
    prop_oneof![
        3 => Just(Filter::All),
        1 => Just(Filter::Nothing),
        3 => remainder.prop_map(|(divisor, remainder)| Filter::Remainder { divisor, remainder }),
        2 => range().prop_map(|(start, end)| Filter::Inside { start, end }),
        2 => range().prop_map(|(start, end)| Filter::Outside { start, end }),
    ]
}

/// Windows from one row of each lane up to the whole table. Large tables have at most about [`WINDOWS_MAX`] windows.
pub fn options(table_rows: u64, row_bytes: u64) -> impl Strategy<Value = StreamOptions> {
    let shuffle = select(vec![ShuffleMode::Block, ShuffleMode::Block, ShuffleMode::Full, ShuffleMode::Sequential]);
    let window_rows = (0..=12u32).prop_map(move |bits| (table_rows / WINDOWS_MAX).max(1 << bits));
    let num_lanes = select(vec![1u32, 2, 3, 5, 12, 48, 1_000]);
    let parts = (any::<u64>(), shuffle, window_rows, 0..=8u64, num_lanes, 1..=2u32);
    parts.prop_map(move |(seed, shuffle, window_rows, block_rows, num_lanes, order_version)| StreamOptions {
        seed,
        shuffle,
        shuffle_window_bytes: Some(window_rows * row_bytes),
        block_bytes: block_rows * row_bytes + 1,
        num_lanes,
        order_version: Some(order_version),
        weight: None,
        pack: None,
        bucket: None,
    })
}

/// Ranks that read a table of `table_rows` rows, or a part of it, from the start of an epoch.
pub fn job(table_rows: u64) -> impl Strategy<Value = Job> {
    let ranks = (1..=WORLD_SIZE_MAX)
        .prop_flat_map(move |world_size| (Just(world_size), batching(table_rows, u64::from(world_size))));
    let budgets = select(vec![128u64 << 10, 1 << 20, 1 << 30]);
    let codecs = select(vec![None, None, Some(Compression::Lz4), Some(Compression::Zstd)]);
    (ranks, 0..1_000u64, budgets, codecs).prop_map(
        |((world_size, batching), epoch, memory_budget_bytes, compression)| Job {
            world_size,
            batching,
            epoch,
            origin: 0,
            first_step: 0,
            read: ReadOptions { memory_budget_bytes, compression, ..ReadOptions::default() },
        },
    )
}

/// Batch sizes for any number of steps up to about [`STEPS_MAX`], or larger than the table.
fn batching(table_rows: u64, world_size: u64) -> impl Strategy<Value = Batching> {
    let rows = prop_oneof![
        6 => (1..=STEPS_MAX, 0..=3u64).prop_map(move |(steps, more)| (table_rows / steps + more).max(1)),
        1 => (1..=50u64).prop_map(move |more| table_rows + more),
    ];
    let last = select(vec![LastBatch::Pad, LastBatch::Drop, LastBatch::Uneven]);
    (rows, any::<bool>(), last).prop_map(move |(rows, per_rank, last)| {
        let size = if per_rank { BatchSize::PerRank((rows / world_size).max(1)) } else { BatchSize::Global(rows) };
        Batching { size, last }
    })
}

/// A job that is interrupted and drops no rows.
pub fn leg(table_rows: u64) -> impl Strategy<Value = Leg> {
    let num_batches = prop_oneof![2 => 0..=5u64, 1 => 0..=2 * STEPS_MAX];
    (job(table_rows), num_batches, 0..=WORLD_SIZE_MAX).prop_map(|(mut job, num_batches, num_ahead)| {
        if job.batching.last == LastBatch::Drop {
            job.batching.last = LastBatch::Pad;
        }
        Leg { job, num_batches, num_ahead }
    })
}
