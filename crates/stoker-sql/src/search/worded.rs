//! Searches texts for words.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, Int64Array, RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use arrow_select::concat::concat_batches;
use datafusion::common::Result as DfResult;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryConsumer;
use stoker_lake::{ROW_ADDR, Table, TextHits, TextSearch};

use super::search_exec::Allowed;
use super::{RANK, SCORE, WordSearch};

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
