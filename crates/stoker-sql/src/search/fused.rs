//! Searches by vector and by words, and merges what both find.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float32Type, UInt64Type};
use arrow_array::{ArrayRef, Float32Array, RecordBatch};
use datafusion::common::{Result as DfResult, internal_err};
use datafusion::execution::TaskContext;
use stoker_lake::{ROW_ADDR, Table, TextHits};

use super::nearest::nearest;
use super::search_exec::Allowed;
use super::worded::{best_texts, with_columns};
use super::{DISTANCE, HybridSearch, SCORE};

/// A row that at least one side found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Found {
    row_addr: u64,
    distance: Option<f32>,
    score: Option<f32>,
    /// What the row is worth.
    worth: f64,
}

/// Returns the best rows with these light columns, distance, score, rank and address, best first.
pub(super) async fn fused(
    table: &Table,
    search: &HybridSearch,
    query: &ArrayRef,
    allowed: Option<&Allowed>,
    columns: &[String],
    context: &TaskContext,
) -> DfResult<RecordBatch> {
    let near = nearest(table, &search.vector, query, allowed, &[], context);
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
