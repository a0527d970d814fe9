//! Random mixtures.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use stoker::{Connection, StreamHandle};
use stoker_types::{MixOptions, MixtureStop, PlanRequest, StreamOptions};

use crate::tests::contracts::case::{Condition, ENDPOINTS_MAX, Job, Query, job, options, query};
use crate::tests::contracts::kinds::kind_columns;

const SOURCES_MAX: usize = 4;

/// The sizes of the tables that are mixed. Large tables are more frequent, because small ones end an epoch soon.
const TABLE_ROWS: [i64; 8] = [1, 7, 100, 100, 1_000, 1_000, 1_000, 2_311];

/// About the most rows of an epoch.
const EPOCH_ROWS_MAX: u64 = 3_000;

/// Queries, their mixture, the options of its stream, and the ranks that read it.
#[derive(Clone, Debug)]
pub struct MixedCase {
    pub queries: Vec<Query>,
    pub mix: MixOptions,
    pub options: StreamOptions,
    pub job: Job,
    /// The number of endpoints over Flight.
    pub num_endpoints: u32,
}

impl MixedCase {
    pub async fn plan(&self, connection: &Connection) -> stoker::Result<StreamHandle> {
        let with_sql = |query: &Query| stoker_types::Query::new(query.sql(), &[]);
        let request = PlanRequest {
            queries: self.queries.iter().map(with_sql).collect(),
            mix: Some(self.mix.clone()),
            options: self.options.clone(),
            run_id: None,
        };
        connection.plan(&request).await
    }

    /// Returns about the number of rows of an epoch.
    pub fn epoch_rows(&self) -> u64 {
        epoch_rows(&self.queries, &self.mix)
    }
}

/// Any mixture, order and job, from the start of an epoch.
pub fn mixed_case() -> impl Strategy<Value = MixedCase> {
    let sources =
        (2..=SOURCES_MAX).prop_flat_map(|num_sources| (vec(query_with_rows(), num_sources), weights(num_sources)));
    // The queries of a mixture have the same columns.
    let sources = (sources, kind_columns()).prop_map(|((queries, weights), kinds)| {
        let queries: Vec<Query> = queries.into_iter().map(|query| Query { kinds, ..query }).collect();
        (queries, weights)
    });
    let stop = select(vec![MixtureStop::First, MixtureStop::All, MixtureStop::Rows]);
    let parts = (sources, stop, 1..=EPOCH_ROWS_MAX).prop_flat_map(|((queries, weights), stop, rows)| {
        let mut mix = MixOptions { weights, stop, epoch_rows: rows };
        if epoch_rows(&queries, &mix) > EPOCH_ROWS_MAX {
            mix.stop = MixtureStop::Rows;
        }
        let num_rows = epoch_rows(&queries, &mix);
        let options = options(num_rows, queries.iter().map(Query::row_bytes).max().unwrap_or(1));
        (Just(queries), Just(mix), options, job(num_rows), 1..=ENDPOINTS_MAX)
    });
    parts.prop_map(|(queries, mix, options, job, num_endpoints)| MixedCase {
        queries,
        mix,
        options,
        job,
        num_endpoints,
    })
}

/// Weights, of which some must be rounded.
pub fn weights(num_sources: usize) -> impl Strategy<Value = Vec<f64>> {
    let hundredths = (1..=99u32).prop_map(|weight| f64::from(weight) / 100.0);
    prop_oneof![
        3 => vec(hundredths, num_sources),
        1 => vec(0.001..1.0f64, num_sources),
    ]
}

fn query_with_rows() -> impl Strategy<Value = Query> {
    let queries = query(TABLE_ROWS.to_vec(), Condition::Sound);
    queries.prop_filter("the queries of a mixture select rows", |query| !query.ids().is_empty())
}

/// Returns the number of rows of an epoch; the exact number may differ by one for each query.
fn epoch_rows(queries: &[Query], mix: &MixOptions) -> u64 {
    let total: f64 = mix.weights.iter().sum();
    let ends = queries.iter().zip(&mix.weights).map(|(query, weight)| query.ids().len() as f64 * total / weight);
    match mix.stop {
        MixtureStop::First => ends.fold(f64::INFINITY, f64::min).ceil() as u64,
        MixtureStop::All => ends.fold(0.0, f64::max).ceil() as u64,
        MixtureStop::Rows => mix.epoch_rows,
    }
}
