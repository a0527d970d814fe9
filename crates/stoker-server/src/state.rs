//! The state that the requests of a server share. No request depends on what an earlier one left in it, so any replica
//! can handle any request.

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt;
use parking_lot::Mutex;
use stoker::{LocalLake, local_reads};
use stoker_chunks::ChunkCache;
use stoker_clock::Environment;
use stoker_lake::WriteAllowance;
use stoker_session::{Error, Result};
use stoker_sql::{Engine, ProgressReports};
use stoker_stream::{Resources, StreamPlan, WeightHistory};
use stoker_types::calls::ServerStatus;
use stoker_types::{Digest, Principal, PrincipalName, Role, StreamSpec};
use stoker_wire::proto::reweigh;
use stoker_wire::proto::stream_request::Source;
use stoker_wire::{TicketSigner, convert};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::ServerConfig;
use crate::caller::Caller;
use crate::flight_sql::Running;
use crate::metrics::Metrics;
use crate::permits::Permits;
use crate::place_filter::PlaceFilter;
use crate::plan_cache::{PlanCache, PolledPlans};
use crate::query_threads::QueryThreads;
use crate::totals::Totals;

/// The number of plans in the cache.
const PLANS_MAX: usize = 64;

pub(crate) struct ServerState {
    /// The lake: its engine, and the memory of the batches of all streams.
    pub lake: LocalLake,
    pub config: ServerConfig,
    /// The time and the random numbers of this crate and of the streams. The lake, SQL and the timers of HTTP/2 have
    /// the machine's.
    pub environment: Environment,
    pub signer: TicketSigner,
    /// The permits for streams, and for query results.
    pub streams: Permits<Caller>,
    pub results: Permits<Caller>,
    /// Removes the location of the lake from messages for clients.
    pub place_filter: PlaceFilter,
    /// The threads on which queries and large requests run.
    pub query_threads: QueryThreads,
    /// The answers that are being sent, for clients that cancel them.
    pub running: Running,
    /// What the streams did.
    pub totals: Arc<Totals>,
    /// The metrics for operators.
    pub metrics: Arc<Metrics>,
    /// Cancelled when the server stops accepting requests.
    pub stopping: CancellationToken,
    /// Cancelled when the grace period is over and running streams must end.
    pub cut: CancellationToken,
    plans: PlanCache,
    /// The streams that are being planned for clients that poll them: as many as may be sent.
    pub polled_plans: PolledPlans,
    /// The write allowance of each principal with the role `read`.
    allowances: Mutex<HashMap<PrincipalName, Arc<WriteAllowance>>>,
}

impl ServerState {
    pub fn try_new(
        engine: Engine,
        config: ServerConfig,
        signer: TicketSigner,
        cache: Option<ChunkCache>,
        environment: Environment,
    ) -> Result<Self> {
        let clock = &environment.clock;
        let query_threads = QueryThreads::start()?;
        engine.lake().keep_requests_on(Handle::current());
        engine.lake().hold_versions_for(config.hold_days);
        let resources = Resources::with_clock(Some(config.memory_budget_bytes), clock.clone()).with_cache(cache);
        let resources = resources.with_local_reads(local_reads(config.direct_io));
        Ok(Self {
            place_filter: PlaceFilter::new(engine.lake()),
            lake: LocalLake::new(engine.with_threads(query_threads.handle().clone()), resources),
            signer,
            query_threads,
            streams: Permits::new(config.stream_shares(), clock.clone()),
            results: Permits::new(config.result_shares(), clock.clone()),
            running: Running::default(),
            totals: Arc::default(),
            metrics: Arc::default(),
            polled_plans: PolledPlans::new(config.stream_shares(), clock.clone()),
            config,
            environment,
            stopping: CancellationToken::new(),
            cut: CancellationToken::new(),
            plans: PlanCache::new(PLANS_MAX),
            allowances: Mutex::default(),
        })
    }

    /// Returns the current time in seconds since 1970 UTC.
    pub fn now_unix_secs(&self) -> u64 {
        self.environment.clock.unix_time().as_secs()
    }

    /// Returns the write allowance of a reader; `None` for principals with other roles, which are not limited.
    pub fn allowance(&self, principal: &Principal) -> Option<Arc<WriteAllowance>> {
        if principal.role >= Role::Write {
            return None;
        }
        let (objects, bytes) = (self.config.reader_objects_per_day, self.config.reader_bytes_per_day);
        let new = || Arc::new(WriteAllowance::new(principal.name.to_string(), objects, bytes));
        Some(self.allowances.lock().entry(principal.name.clone()).or_insert_with(new).clone())
    }

    /// Returns the engine with the write allowance of a principal, if it has one.
    pub fn engine_for(&self, principal: &Principal) -> Engine {
        match self.allowance(principal) {
            Some(allowance) => self.lake.within(allowance),
            None => Engine::clone(&self.lake),
        }
    }

    /// Plans the stream of a request, or finds its plan. The server derives all that a plan writes to the lake from the
    /// query: the row set, the specification, and for a run its id and the reader that began it. The selection of the
    /// rows of a new stream is reported.
    pub async fn plan(
        &self,
        principal: &Principal,
        source: Option<Source>,
        reports: ProgressReports,
    ) -> Result<StreamPlan> {
        match source {
            Some(Source::Query(query)) => {
                let request = convert::request_from_proto(&query)?;
                let engine = self.engine_for(principal).reporting(reports);
                let plan = StreamPlan::plan_for(&engine, &request, principal.run_owner()).await?;
                self.plans.put(&plan);
                Ok(plan)
            }
            Some(Source::Reweigh(reweigh)) => {
                let plan = match reweigh.stream {
                    Some(reweigh::Stream::StreamId(id)) => self.plan_by_id(id.parse()?).await?,
                    Some(reweigh::Stream::Spec(json)) => self.plan_by_spec(&json, principal).await?,
                    None => return Err(Error::invalid("a request for other weights needs a stream")),
                };
                // A specification can refer only to one that the lake stores.
                let may_link = reweigh.may_link && plan.spec_stored();
                let history = if may_link { WeightHistory::Linked } else { WeightHistory::Whole };
                let (epoch, position, weights) = (reweigh.epoch, reweigh.position, &reweigh.weights);
                let plan = plan.reweigh(&self.engine_for(principal), epoch, position, weights, history).await?;
                self.plans.put(&plan);
                Ok(plan)
            }
            Some(Source::StreamId(id)) => self.plan_by_id(id.parse()?).await,
            Some(Source::Spec(json)) => self.plan_by_spec(&json, principal).await,
            None => Err(Error::invalid("a stream request needs a query, a stream id or a specification")),
        }
    }

    /// Returns the totals since the server started, and its current memory use.
    pub fn status(&self) -> ServerStatus {
        let (memory_budget_bytes, memory_held_bytes) =
            (self.lake.resources().memory().total_bytes(), self.lake.resources().memory().held_bytes());
        let request_limit = self.lake.resources().requests().num_requests() as u64;
        ServerStatus { memory_budget_bytes, memory_held_bytes, request_limit, ..self.totals.status() }
    }

    pub async fn plan_by_id(&self, id: Digest) -> Result<StreamPlan> {
        let load = || async { Ok(StreamPlan::load_by_id(&self.lake, id).boxed().await?) };
        self.plans.get_or_load(id, load).await
    }

    /// Returns the plan of a specification that a client sent. The specification of a reader is used but not stored.
    pub async fn plan_by_spec(&self, json: &[u8], principal: &Principal) -> Result<StreamPlan> {
        let spec = StreamSpec::from_json(json)?;
        let load = || async {
            Ok(match principal.role {
                Role::Read => StreamPlan::load_unstored(&self.engine_for(principal), &spec).boxed().await?,
                Role::Write | Role::Admin => StreamPlan::load(&self.lake, &spec).boxed().await?,
            })
        };
        self.plans.get_or_load(spec.stream_id(), load).await
    }
}
