//! Runs, whose processes agree on one stream through the lake.

use serde::{Deserialize, Serialize};
use stoker_dialect::is_same_query;
use stoker_lake::PutOutcome;
use stoker_sql::Engine;
use stoker_types::{
    BUCKET_VERSION, BucketSpec, Digest, ErrorKind, PACK_VERSION, PackSpec, PlanRequest, PrincipalName, RunId,
    SourceSpec, StreamOptions, StreamSpec, WEIGHT_VERSION, WeightSpec, slots_for,
};

use crate::options::orders;
use crate::plan::load_spec;
use crate::{Error, Result, StreamPlan};

/// The stream that a run delivers. It is stored as an object that the first process of the run creates, once.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunStream {
    version: u32,
    stream_id: Digest,
    /// The principal that created the run, if it may log only runs of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<PrincipalName>,
}

const RUN_VERSION: u32 = 1;

/// The path of runs, relative to the lake's objects.
pub(crate) const RUNS: &str = "runs";

/// Returns the stream of a run. A new run's stream is planned now. For an existing run, the stream that its first
/// process planned is loaded.
///
/// # Errors
/// [`Error::RunMismatch`] if the run streams something else; `PermissionDenied` for a new run in a lake that cannot be
/// written.
pub(crate) async fn plan_run(
    engine: &Engine,
    request: &PlanRequest,
    run_id: &RunId,
    owner: Option<&PrincipalName>,
) -> Result<StreamPlan> {
    let path = run_path(run_id);
    if let Some(found) = engine.lake().objects().get(&path).await? {
        return load(engine, request, run_id, &found).await;
    }
    let plan = StreamPlan::plan_now(engine, request).await?;
    match claim(engine, run_id, plan.stream_id(), owner).await {
        Ok(PutOutcome::Created) => Ok(plan),
        Ok(PutOutcome::Exists) => {
            let gone = || Error::Internal { reason: format!("run {run_id} exists and cannot be read") };
            let found = engine.lake().objects().get(&path).await?.ok_or_else(gone)?;
            load(engine, request, run_id, &found).await
        }
        Err(Error::Lake(error)) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unauthenticated) => {
            Err(Error::RunNotStored { run_id: run_id.to_string(), source: error })
        }
        Err(error) => Err(error),
    }
}

/// Checks that a run belongs to `owner`. If the run does not exist, it is created, for a stream that was resumed under
/// the name of a new run.
///
/// # Errors
/// [`Error::RunOfAnother`]; [`Error::UnknownStream`] for a stream that was never planned; storage errors.
pub async fn own_run(engine: &Engine, run_id: &RunId, stream_id: Digest, owner: &PrincipalName) -> Result<()> {
    load_spec(engine.lake(), stream_id).await?;
    let path = run_path(run_id);
    let mut found = engine.lake().objects().get(&path).await?;
    if found.is_none() && claim(engine, run_id, stream_id, Some(owner)).await? == PutOutcome::Exists {
        found = engine.lake().objects().get(&path).await?;
    }
    match found.map(|json| parse(&json)).transpose()? {
        Some(run) if run.owner.as_ref() != Some(owner) => Err(Error::RunOfAnother { run_id: run_id.to_string() }),
        _ => Ok(()),
    }
}

async fn claim(
    engine: &Engine,
    run_id: &RunId,
    stream_id: Digest,
    owner: Option<&PrincipalName>,
) -> Result<PutOutcome> {
    let stream = RunStream { version: RUN_VERSION, stream_id, owner: owner.cloned() };
    let json = serde_json::to_vec(&stream).map_err(|source| Error::Internal { reason: source.to_string() })?;
    Ok(engine.lake().objects().claim(&run_path(run_id), json.into()).await?)
}

/// Returns the path of a run, relative to the lake's objects.
fn run_path(run_id: &RunId) -> String {
    format!("{RUNS}/{run_id}")
}

/// Returns the stream id in a stored run.
pub(crate) fn stream_of(json: &[u8]) -> Result<Digest> {
    Ok(parse(json)?.stream_id)
}

fn parse(json: &[u8]) -> Result<RunStream> {
    let malformed =
        |reason: String| Error::Types(stoker_types::Error::Malformed { what: "the stream of a run", reason });
    let stream: RunStream = serde_json::from_slice(json).map_err(|source| malformed(source.to_string()))?;
    match stream.version {
        RUN_VERSION => Ok(stream),
        version => Err(malformed(format!("its version is {version}; this build of Stoker reads {RUN_VERSION}"))),
    }
}

async fn load(engine: &Engine, request: &PlanRequest, run_id: &RunId, json: &[u8]) -> Result<StreamPlan> {
    let stream = parse(json)?;
    let plan = StreamPlan::load(engine, &load_spec(engine.lake(), stream.stream_id).await?).await?;
    let asked = asked(&plan, &with_views(engine, &plan, request).await?)?;
    let differences = plan.spec().differences(&asked, ("the run", "this process"));
    match differences.is_empty() {
        true => Ok(plan),
        false => Err(Error::RunMismatch { run_id: run_id.to_string(), differences }),
    }
}

/// Puts the queries of views in place of their names, in queries that the run does not have.
async fn with_views(engine: &Engine, plan: &StreamPlan, request: &PlanRequest) -> Result<PlanRequest> {
    let mut request = request.clone();
    for query in &mut request.queries {
        if !plan.spec().sources.iter().any(|known| is_same_query(&known.sql, &query.sql)) {
            query.sql = engine.expanded(&query.sql, None).await?;
        }
    }
    Ok(request)
}

/// Returns the specification that the request would have at the run's snapshots.
fn asked(plan: &StreamPlan, request: &PlanRequest) -> Result<StreamSpec> {
    let mut spec = plan.spec().clone();
    spec.seed = request.options.seed;
    let weights = request.mix.as_ref().map(|mix| slots_for(&mix.weights)).transpose()?;
    let shares: Vec<f64> = weights.iter().flatten().map(|slots| f64::from(*slots)).collect();
    let fits = shares.is_empty() || shares.len() == plan.inner.sources.len();
    // A run keeps its order when a newer version becomes the default.
    let of_run = spec.sources.first().map(|source| source.order.version());
    let options = StreamOptions { order_version: request.options.order_version.or(of_run), ..request.options.clone() };
    let orders = if fits { orders(&options, &plan.inner.sources, &shares) } else { Vec::new() };
    let mut sources = Vec::new();
    for (index, query) in request.queries.iter().enumerate() {
        let known = spec.sources.get(index).or(spec.sources.first());
        let Some(known) = known else { break };
        let order = orders.get(index).unwrap_or(&known.order).clone();
        // If the request has another text of the same query, the run's text is used.
        let sql = if is_same_query(&known.sql, &query.sql) { &known.sql } else { &query.sql };
        let weight = request.options.weight.as_ref().map(|column| match &known.weight {
            Some(weight) => WeightSpec { column: column.clone(), ..weight.clone() },
            None => WeightSpec {
                version: WEIGHT_VERSION,
                column: column.clone(),
                num_rows: known.num_rows,
                digest: known.row_set,
            },
        });
        let pack = request.options.pack.as_ref().map(|options| match &known.pack {
            Some(pack) => PackSpec { options: options.clone(), ..pack.clone() },
            None => PackSpec {
                version: PACK_VERSION,
                options: options.clone(),
                group_packs: options.group_packs(),
                num_rows: known.num_rows,
                digest: known.row_set,
            },
        });
        let bucket = request.options.bucket.as_ref().map(|options| match &known.bucket {
            Some(bucket) => BucketSpec { options: options.clone(), ..bucket.clone() },
            None => BucketSpec {
                version: BUCKET_VERSION,
                options: options.clone(),
                num_rows: known.num_rows,
                digest: known.row_set,
            },
        });
        sources.push(SourceSpec {
            sql: sql.clone(),
            params: query.params.clone(),
            order,
            weight,
            pack,
            bucket,
            ..known.clone()
        });
    }
    spec.sources = sources;
    match (&mut spec.mixture, &request.mix, weights) {
        (Some(mixture), Some(mix), Some(slots)) => {
            mixture.stop = mix.stop;
            // Only the first weights are compared, because the weights may have been changed since the run began.
            mixture.segments[0].slots = slots;
            if mix.stop == stoker_types::MixtureStop::Rows {
                spec.num_rows = mix.epoch_rows;
            }
        }
        (mixture, None, _) => *mixture = None,
        _ => {}
    }
    Ok(spec)
}
