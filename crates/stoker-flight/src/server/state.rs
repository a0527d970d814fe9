//! What the requests of a server share. Nothing in it is needed by another request: any replica can answer any.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::FutureExt;
use parking_lot::Mutex;
use stoker_chunks::ChunkCache;
use stoker_lake::WriteAllowance;
use stoker_sql::Engine;
use stoker_stream::{MemoryBudget, StreamPlan, WeightHistory};
use stoker_types::calls::ServerStatus;
use stoker_types::{Digest, Principal, PrincipalName, Role, StreamSpec};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::client::LocalLake;
use crate::local_reads::local_reads;
use crate::proto::reweigh;
use crate::proto::stream_request::Source;
use crate::server::ServerConfig;
use crate::server::caller::Caller;
use crate::server::metrics::Metrics;
use crate::server::place_filter::PlaceFilter;
use crate::server::places::Places;
use crate::server::plan_cache::PlanCache;
use crate::server::query_threads::QueryThreads;
use crate::server::totals::Totals;
use crate::{Error, Result, TicketSigner, convert};

/// Plans kept for the next requests.
const PLANS_MAX: usize = 64;

pub(crate) struct ServerState {
    /// The lake: its engine, and the memory of the batches of all streams.
    pub lake: LocalLake,
    pub config: ServerConfig,
    pub signer: TicketSigner,
    /// The places of streams, and of results of queries.
    pub streams: Places<Caller>,
    pub results: Places<Caller>,
    /// Takes the lake's place out of what clients are told.
    pub place_filter: PlaceFilter,
    /// Where SQL and large requests are worked on.
    pub query_threads: QueryThreads,
    /// What the streams did.
    pub totals: Arc<Totals>,
    /// What operators are told.
    pub metrics: Arc<Metrics>,
    /// Cancelled when no new requests are taken.
    pub stopping: CancellationToken,
    /// Cancelled when running streams must end.
    pub cut: CancellationToken,
    plans: PlanCache,
    /// What each reader may still leave in the lake.
    allowances: Mutex<HashMap<PrincipalName, Arc<WriteAllowance>>>,
}

impl ServerState {
    pub fn try_new(
        engine: Engine,
        config: ServerConfig,
        signer: TicketSigner,
        cache: Option<ChunkCache>,
    ) -> Result<Self> {
        let query_threads = QueryThreads::start()?;
        engine.lake().keep_requests_on(Handle::current());
        engine.lake().hold_versions_for(config.hold_days);
        let budget = MemoryBudget::new(config.memory_budget_bytes).with_cache(cache);
        let budget = budget.with_local_reads(local_reads(config.direct_io));
        Ok(Self {
            place_filter: PlaceFilter::new(engine.lake()),
            lake: LocalLake::new(engine.with_threads(query_threads.handle().clone()), budget),
            signer,
            query_threads,
            streams: Places::new(config.stream_shares()),
            results: Places::new(config.result_shares()),
            totals: Arc::default(),
            metrics: Arc::default(),
            config,
            stopping: CancellationToken::new(),
            cut: CancellationToken::new(),
            plans: PlanCache::new(PLANS_MAX),
            allowances: Mutex::default(),
        })
    }

    /// What a reader may leave in the lake; others are not limited.
    pub fn allowance(&self, principal: &Principal) -> Option<Arc<WriteAllowance>> {
        if principal.role >= Role::Write {
            return None;
        }
        let (objects, bytes) = (self.config.reader_objects_per_day, self.config.reader_bytes_per_day);
        let new = || Arc::new(WriteAllowance::new(principal.name.to_string(), objects, bytes));
        Some(self.allowances.lock().entry(principal.name.clone()).or_insert_with(new).clone())
    }

    /// The engine as a principal may use it.
    pub fn engine_for(&self, principal: &Principal) -> Engine {
        match self.allowance(principal) {
            Some(allowance) => self.lake.within(allowance),
            None => Engine::clone(&self.lake),
        }
    }

    /// Plans or finds the stream of a request. What a plan writes to the lake, the server makes from the query: its row set, its
    /// specification, and for a run its name with the reader who began it.
    pub async fn plan(&self, principal: &Principal, source: Option<Source>) -> Result<StreamPlan> {
        match source {
            Some(Source::Query(query)) => {
                let request = convert::request_from_proto(&query)?;
                let plan = StreamPlan::plan_for(&self.lake_for(principal), &request, principal.run_owner()).await?;
                self.plans.put(&plan);
                Ok(plan)
            }
            Some(Source::Reweigh(reweigh)) => {
                let plan = match reweigh.stream {
                    Some(reweigh::Stream::StreamId(id)) => self.plan_by_id(id.parse()?).await?,
                    Some(reweigh::Stream::Spec(json)) => self.plan_by_spec(&json, principal).await?,
                    None => return Err(Error::invalid("a request for other weights needs a stream")),
                };
                // To a specification that is not in the lake nothing can be linked.
                let may_link = reweigh.may_link && plan.spec_stored();
                let history = if may_link { WeightHistory::Linked } else { WeightHistory::Whole };
                let (epoch, position, weights) = (reweigh.epoch, reweigh.position, &reweigh.weights);
                let plan = plan.reweigh(&self.lake_for(principal), epoch, position, weights, history).await?;
                self.plans.put(&plan);
                Ok(plan)
            }
            Some(Source::StreamId(id)) => self.plan_by_id(id.parse()?).await,
            Some(Source::Spec(json)) => self.plan_by_spec(&json, principal).await,
            None => Err(Error::invalid("a stream request needs a query, a stream id or a specification")),
        }
    }

    /// What the server did since it started, and the memory that it uses now.
    pub fn status(&self) -> ServerStatus {
        let (memory_budget_bytes, memory_held_bytes) = (self.lake.budget().total_bytes(), self.lake.budget().held_bytes());
        let request_limit = self.lake.budget().requests().num_requests() as u64;
        ServerStatus { memory_budget_bytes, memory_held_bytes, request_limit, ..self.totals.status() }
    }

    pub async fn plan_by_id(&self, id: Digest) -> Result<StreamPlan> {
        let load = || async { Ok(StreamPlan::load_by_id(&self.lake, id).boxed().await?) };
        self.plans.get_or_load(id, load).await
    }

    /// The stream of a specification that a client sent. A reader's is used, and not stored.
    pub async fn plan_by_spec(&self, json: &[u8], principal: &Principal) -> Result<StreamPlan> {
        let spec = StreamSpec::from_json(json)?;
        let load = || async {
            Ok(match principal.role {
                Role::Read => StreamPlan::load_unstored(&self.lake_for(principal), &spec).boxed().await?,
                Role::Write | Role::Admin => StreamPlan::load(&self.lake, &spec).boxed().await?,
            })
        };
        self.plans.get_or_load(spec.stream_id(), load).await
    }
}

/// Seconds since 1970 UTC.
pub(crate) fn now_unix_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
