//! Searches texts for words, alone or together with a search for vectors.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float32Type, UInt64Type};
use arrow_array::{ArrayRef, Float32Array, Int64Array, RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use datafusion::common::{Result as DfResult, internal_err};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryConsumer;
use stoker_lake::{ROW_ADDR, Table, TextHits, TextSearch};

use super::nearest::nearest;
use super::search_exec::Allowed;
use super::{DISTANCE, HybridSearch, RANK, SCORE, WordSearch};
use crate::provider::HeavyTable;

/// The rows that are read at a time.
const ROWS_PER_READ: usize = 8_192;

/// Returns the rows that match best, best first.
pub(super) async fn best_texts(
    table: &Table,
    search: &WordSearch,
    allowed: Option<&Allowed>,
    context: &TaskContext,
) -> DfResult<TextHits> {
    let request = TextSearch {
        columns: search.columns.clone(),
        query: search.query.clone(),
        analysis: search.analysis,
        k: search.k,
        rows: allowed.map(|allowed| allowed.rows.clone()),
        use_index: search.use_index,
        memory: context.memory_pool().clone(),
    };
    table.search_text(&request).await
}

/// Returns the rows that match best with these light columns, score, rank and address.
pub(super) async fn with_scores(
    table: &Table,
    hits: TextHits,
    columns: &[String],
    context: &TaskContext,
) -> DfResult<RecordBatch> {
    let scores: ArrayRef = Arc::new(Float32Array::from(hits.scores));
    with_columns(table, &hits.row_addrs, columns, vec![(SCORE, scores)], context).await
}

/// Reads light columns of rows, and appends computed columns, the rank in this order, and the address.
pub(super) async fn with_columns(
    table: &Table,
    row_addrs: &[u64],
    columns: &[String],
    computed: Vec<(&str, ArrayRef)>,
    context: &TaskContext,
) -> DfResult<RecordBatch> {
    let memory = MemoryConsumer::new("rows of a search").register(context.memory_pool());
    let mut parts = vec![table.take(columns, &[]).await?];
    let to_read = if columns.is_empty() { &[] } else { row_addrs };
    for some in to_read.chunks(ROWS_PER_READ) {
        let part = table.take(columns, some).await?;
        // The parts and their concatenation exist at the same time.
        memory.try_grow(part.get_array_memory_size().saturating_mul(2))?;
        parts.push(part);
    }
    let light = match columns.is_empty() {
        true => RecordBatch::new_empty(Arc::new(Schema::empty())),
        false => concat_batches(&parts[0].schema(), &parts)?,
    };
    let ranks: ArrayRef = Arc::new(Int64Array::from_iter_values((1..).take(row_addrs.len())));
    let addrs: ArrayRef = Arc::new(UInt64Array::from(row_addrs.to_vec()));
    let mut fields: Vec<Arc<Field>> = light.schema().fields().iter().cloned().collect();
    let mut arrays = light.columns().to_vec();
    for (name, array) in computed.into_iter().chain([(RANK, ranks), (ROW_ADDR, addrs)]) {
        let data_type: DataType = array.data_type().clone();
        fields.push(Arc::new(Field::new(name, data_type, true)));
        arrays.push(array);
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}

/// A row that at least one side found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Found {
    row_addr: u64,
    distance: Option<f32>,
    score: Option<f32>,
    /// What the row is worth.
    worth: f64,
}

/// Searches by vector and by words, and merges what both find. Returns the best rows with these light columns, distance,
/// score, rank and address, best first.
pub(super) async fn fused(
    heavy: &HeavyTable,
    search: &HybridSearch,
    query: &ArrayRef,
    allowed: Option<&Allowed>,
    columns: &[String],
    context: &TaskContext,
) -> DfResult<RecordBatch> {
    let table = &heavy.table;
    let near = nearest(heavy, &search.vector, query, allowed, &[], context);
    let (near, texts) = futures::try_join!(near, best_texts(table, &search.words, allowed, context))?;
    let addrs = near.column_by_name(ROW_ADDR).and_then(|addrs| addrs.as_primitive_opt::<UInt64Type>());
    let distances = near.column_by_name(DISTANCE).and_then(|column| column.as_primitive_opt::<Float32Type>());
    let (Some(addrs), Some(distances)) = (addrs, distances) else {
        return internal_err!("a search for vectors gave no addresses or no distances");
    };
    let found = merge(search, addrs.values(), distances.values(), &texts);
    let row_addrs: Vec<u64> = found.iter().map(|row| row.row_addr).collect();
    let distances: ArrayRef = Arc::new(found.iter().map(|row| row.distance).collect::<Float32Array>());
    let scores: ArrayRef = Arc::new(found.iter().map(|row| row.score).collect::<Float32Array>());
    with_columns(table, &row_addrs, columns, vec![(DISTANCE, distances), (SCORE, scores)], context).await
}

/// Merges the rows of both sides, each best first. Ties are ordered by address.
fn merge(search: &HybridSearch, addrs: &[u64], distances: &[f32], texts: &TextHits) -> Vec<Found> {
    let [of_vector, of_words] = search.weights;
    let worth = |weight: f64, index: usize| weight / (search.rrf_k + (index + 1) as f64);
    let mut found: HashMap<u64, Found> = HashMap::new();
    for (index, (row_addr, distance)) in addrs.iter().zip(distances).enumerate() {
        let row = found.entry(*row_addr).or_default();
        *row = Found { row_addr: *row_addr, distance: Some(*distance), score: None, worth: worth(of_vector, index) };
    }
    for (index, (row_addr, score)) in texts.row_addrs.iter().zip(&texts.scores).enumerate() {
        let row = found.entry(*row_addr).or_default();
        (row.row_addr, row.score) = (*row_addr, Some(*score));
        row.worth += worth(of_words, index);
    }
    let mut found: Vec<Found> = found.into_values().collect();
    found.sort_unstable_by(|one, other| other.worth.total_cmp(&one.worth).then(one.row_addr.cmp(&other.row_addr)));
    found.truncate(search.k);
    found
}
