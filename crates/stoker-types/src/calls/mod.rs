//! The calls of a lake: everything that is asked beside the rows of queries and streams.
//!
//! A call is a plain struct. The table at the end of this file gives each call its name, the role that it takes and its
//! answer. Everything else follows from the table:
//!
//! ```text
//! DescribeTable { table } ──► Connection::call ─┬─ local:  impl Answers<DescribeTable> for the lake in this process
//!                                               └─ remote: DoAction("describe", JSON of the struct) ──► the same impl,
//!                                                          in the server
//! ```
//!
//! To add a call, write its struct and its answer in one of the modules here, add a row to the table, and implement
//! [`Answers`] for the local lake. The bound [`AnswersAll`] makes the compiler reject a lake that lacks a call.
//! [`ExecuteStatement`] is no row of the table, because its answer is a sequence of messages.

mod about_statements;
mod about_streams;
mod about_tables;
mod answer;
mod runs;
mod schema_text;

use std::future::Future;
use std::pin::Pin;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use about_statements::{EXECUTE, ExecuteStatement, StatementMessage};
pub use about_streams::{
    Beside, FindNulls, FindRows, GetStatus, GetVersion, ListStreams, OpenStream, ROW_ADDRS_MAX, ReadBeside,
    ServerStatus, ServerVersion,
};
pub use about_tables::{
    DescribeTable, ExamineTable, ExplainQuery, ListTables, ListVersions, OpenTable, TableAnswer, TableAt, TableSize,
    TagVersion,
};
pub use answer::{Answer, Done, IpcBytes};
pub use runs::{FindWrite, LogBadRows, LogRun, ReadRunLog, VerifyReceipts, WriteKey};
pub use schema_text::SchemaText;

use self::about_tables::Checked;
use crate::{
    ColumnLayout, Context, Diagnosis, EpochVerdict, ErrorKind, HasKind, Principal, PrincipalName, Role, RunEntry,
    VersionInfo,
};

/// A call of a lake: a plain struct whose JSON is the body of a Flight action.
pub trait Call: Serialize + DeserializeOwned + Clone + Send + Sync + 'static {
    /// What a lake answers.
    type Answer: Answer;

    /// The name of the Flight action.
    const NAME: &'static str;

    /// The role that the call takes.
    const ROLE: Role;

    /// Whether the call may be made again when its answer is lost.
    const IS_REPEATABLE: bool;

    /// What the call does, in progressive form, for messages about attempts: `listing the tables`.
    const DOING: &'static str;

    /// The fields of the request and what the answer is, for `ListActions`.
    const ABOUT: &'static str;

    /// Checks that the fields fit together, which serde does not.
    ///
    /// # Errors
    /// What is wrong, as the rest of a sentence that begins with the name of the action: `needs a table`.
    fn check(&self) -> Result<(), String>;
}

/// The errors of a lake's answers.
pub trait Answering {
    /// Why a call fails.
    type Error: From<CallError>;
}

/// A lake that answers one call. The answer depends on the lake, the context and the call only.
pub trait Answers<C: Call>: Answering {
    /// Answers the call.
    ///
    /// # Errors
    /// As the documentation of the call says; storage errors.
    fn answer(&self, context: &Context, call: C) -> impl Future<Output = Result<C::Answer, Self::Error>> + Send;
}

/// The future of a boxed answer.
pub type BoxedAnswer<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// [`Answers`] behind a pointer: what `dyn` lakes answer through.
pub trait BoxedAnswers<C: Call>: Answering {
    /// Answers the call, as [`Answers::answer`] does.
    fn boxed_answer<'a>(&'a self, context: &'a Context, call: C) -> BoxedAnswer<'a, C::Answer, Self::Error>;
}

impl<C: Call, L: Answers<C>> BoxedAnswers<C> for L {
    fn boxed_answer<'a>(&'a self, context: &'a Context, call: C) -> BoxedAnswer<'a, C::Answer, L::Error> {
        Box::pin(self.answer(context, call))
    }
}

/// What `ListActions` tells about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallInfo {
    /// The name of the Flight action.
    pub name: &'static str,
    /// The role that the call takes.
    pub role: Role,
    /// Whether the call may be made again when its answer is lost.
    pub is_repeatable: bool,
    /// The fields of the request and what the answer is.
    pub about: &'static str,
}

/// A request that names no call, or does not fit the call that it names.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No call has this name.
    #[error("there is no action {name:?}; actions: {}", names())]
    Unknown {
        /// The name, as it was given.
        name: String,
    },
    /// The body of the request is not the JSON of the call.
    #[error("the body of action {name} is not valid JSON for this action: {reason}")]
    Malformed {
        /// The call.
        name: &'static str,
        /// What is wrong with the JSON, and where.
        reason: String,
    },
    /// The fields of the request do not fit together.
    #[error("action {name} {reason}")]
    Invalid {
        /// The call.
        name: &'static str,
        /// What is wrong, as the rest of the sentence.
        reason: String,
    },
    /// The caller's role does not allow the call.
    #[error("action {name} needs the role {needed}, and {principal} has the role {role}")]
    Forbidden {
        /// The call.
        name: &'static str,
        /// The role that the call takes.
        needed: Role,
        /// The caller's name.
        principal: PrincipalName,
        /// The caller's role.
        role: Role,
    },
    /// An answer cannot be encoded or decoded.
    #[error("the answer to action {name} cannot be {attempted}: {reason}")]
    Answer {
        /// The call.
        name: &'static str,
        /// `encoded` or `decoded`.
        attempted: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

impl CallError {
    /// What a caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            CallError::Unknown { .. } | CallError::Malformed { .. } | CallError::Invalid { .. } => {
                ErrorKind::InvalidRequest
            }
            CallError::Forbidden { .. } => ErrorKind::PermissionDenied,
            CallError::Answer { .. } => ErrorKind::Internal,
        }
    }
}

impl HasKind for CallError {
    fn kind(&self) -> ErrorKind {
        CallError::kind(self)
    }
}

/// Reads the call from the body of an action. An empty body stands for `{}`.
///
/// # Errors
/// [`CallError::Malformed`] for what is not the JSON of the call; [`CallError::Invalid`] for fields that do not fit together.
pub fn decode_call<C: Call>(body: &[u8]) -> Result<C, CallError> {
    let body = if body.is_empty() { b"{}" } else { body };
    let call: C = serde_json::from_slice(body)
        .map_err(|source| CallError::Malformed { name: C::NAME, reason: source.to_string() })?;
    check_call(&call)?;
    Ok(call)
}

/// Checks that the fields of a call fit together, as a server does.
///
/// # Errors
/// [`CallError::Invalid`].
pub fn check_call<C: Call>(call: &C) -> Result<(), CallError> {
    call.check().map_err(|reason| CallError::Invalid { name: C::NAME, reason })
}

/// The body of the action that carries the call.
///
/// # Errors
/// [`CallError::Malformed`] for a value that has no JSON.
pub fn encode_call<C: Call>(call: &C) -> Result<Vec<u8>, CallError> {
    serde_json::to_vec(call).map_err(|source| CallError::Malformed { name: C::NAME, reason: source.to_string() })
}

/// Reads the answer to a call from the body of an action's result.
///
/// # Errors
/// [`CallError::Answer`] for bytes that are not such an answer.
pub fn decode_answer<C: Call>(body: Vec<u8>) -> Result<C::Answer, CallError> {
    let fail = |reason| CallError::Answer { name: C::NAME, attempted: "decoded", reason };
    C::Answer::decode(body).map_err(fail)
}

/// Has a lake answer the call that an action's body holds; the result is the body of the action's result.
async fn answer_body<C: Call, L: Answers<C>>(lake: &L, context: &Context, body: &[u8]) -> Result<Vec<u8>, L::Error> {
    let Principal { name: principal, role } = &context.principal;
    if *role < C::ROLE {
        let (name, needed, principal) = (C::NAME, C::ROLE, principal.clone());
        return Err(CallError::Forbidden { name, needed, principal, role: *role }.into());
    }
    let answer = lake.answer(context, decode_call::<C>(body)?).await?;
    let fail = |reason| CallError::Answer { name: C::NAME, attempted: "encoded", reason };
    Ok(answer.encode().map_err(fail)?)
}

fn names() -> String {
    let names: Vec<&str> = CALLS.iter().chain([&EXECUTE]).map(|call| call.name).collect();
    names.join(", ")
}

/// How often a call may be made where answers are lost.
enum Repeats {
    /// Any number of times.
    Freely,
    /// Once, unless the caller can tell whether it was done.
    Once,
}

impl Repeats {
    const fn freely(self) -> bool {
        matches!(self, Repeats::Freely)
    }
}

macro_rules! calls {
    ($( $call:ident = $name:literal, $role:ident, $repeats:ident, $doing:literal, $about:literal => $answer:ty; )*) => {
        $(
            impl Call for $call {
                type Answer = $answer;
                const NAME: &'static str = $name;
                const ROLE: Role = Role::$role;
                const IS_REPEATABLE: bool = Repeats::$repeats.freely();
                const DOING: &'static str = $doing;
                const ABOUT: &'static str = $about;

                fn check(&self) -> Result<(), String> {
                    Checked::checked(self)
                }
            }
        )*

        /// All calls, in the order of the table.
        pub const CALLS: &[CallInfo] = &[$(
            CallInfo {
                name: $name,
                role: Role::$role,
                is_repeatable: Repeats::$repeats.freely(),
                about: $about,
            }
        ),*];

        /// A lake that answers every call: a lake that lacks one does not compile.
        pub trait AnswersAll: $( Answers<$call> + )* Send + Sync {}

        impl<L> AnswersAll for L where L: $( Answers<$call> + )* Send + Sync {}

        /// [`AnswersAll`] behind a pointer.
        pub trait BoxedAnswersAll: $( BoxedAnswers<$call> + )* Send + Sync {}

        impl<L> BoxedAnswersAll for L where L: $( BoxedAnswers<$call> + )* Send + Sync {}

        /// Has a lake answer an action: finds the call of that name, checks the caller's role, reads the call from the body
        /// and encodes the answer.
        ///
        /// # Errors
        /// A name that no call has, a body that is not the call's, a role that does not allow it; errors of the answer.
        pub async fn answer_action<L: AnswersAll>(
            lake: &L,
            context: &Context,
            name: &str,
            body: &[u8],
        ) -> Result<Vec<u8>, L::Error> {
            match name {
                $( $name => Box::pin(answer_body::<$call, L>(lake, context, body)).await, )*
                name => Err(CallError::Unknown { name: name.to_string() }.into()),
            }
        }
    };
}

calls! {
    GetVersion = "version", Read, Freely, "asking for the version", "the version of the server" => ServerVersion;
    GetStatus = "status", Admin, Freely, "asking for the status",
        "what the server did since it started: streams, rows, bytes, bytes sent, seconds waited; memory of batches"
        => ServerStatus;
    ListStreams = "streams", Admin, Freely, "listing the open streams",
        "the streams that are open: stream id, client, epoch, rank, rows, bytes, seconds" => Vec<OpenStream>;
    ListTables = "tables", Read, Freely, "listing the tables", "the names of all tables" => Vec<String>;
    OpenTable = "table", Read, Freely, "opening a table", "{table, version?, tag?}: version, rows, schema and tags of a table"
        => TableAnswer;
    ListVersions = "versions", Read, Freely, "listing the versions", "{table}: its versions" => Vec<VersionInfo>;
    TagVersion = "tag", Write, Once, "tagging a version", "{table, version?, new_tag}: gives a version a tag" => Done;
    DescribeTable = "describe", Read, Freely, "describing a table", "{table, version?, tag?}: how its columns are stored"
        => Vec<ColumnLayout>;
    ExamineTable = "doctor", Read, Freely, "examining a table",
        "{table, version?, tag?}: what in its layout costs speed, and what to do about it" => Diagnosis;
    ExplainQuery = "explain", Read, Freely, "explaining a query",
        "{sql, params?, approximate?}: the plan of a query" => String;
    VerifyReceipts = "verify", Read, Freely, "verifying receipts",
        "{receipts}: whether the receipts of all ranks show that each row was seen exactly once" => Vec<EpochVerdict>;
    ReadRunLog = "run", Read, Freely, "reading the run log", "{run_id}: the log of a run" => Vec<RunEntry>;
    LogBadRows = "log_bad_rows", Read, Once, "adding to the table of bad rows",
        "{bad_rows, write_key?}: adds rows to the table of bad rows" => Done;
    FindRows = "rows", Read, Freely, "looking up rows",
        "{stream_id, epoch, positions: {start, end}}: the addresses of the rows at these positions" => Vec<Vec<u64>>;
    FindNulls = "nulls", Read, Freely, "looking for nulls",
        "{stream_id, columns}: which of these columns have a null in a row of the stream" => Vec<String>;
    ReadBeside = "rows_beside", Read, Freely, "reading rows to replace bad rows",
        "{stream_id or spec, epoch, beside: [{position, offset}], unverified?, retry_budget_millis?}: rows that \
         may replace bad rows, each `offset` rows after `position`, cyclically in the window of `position`; the answer \
         is an Arrow IPC stream with the first of these rows, as many as fit into one answer"
        => IpcBytes;
    FindWrite = "find_write", Write, Freely, "looking for a write",
        "{table, write_key}: the version that the write under the key became, or null" => Option<u64>;
    LogRun = "log_run", Read, Once, "adding to the run log", "{entry, write_key?}: adds an entry to the log of its run" => Done;
}
