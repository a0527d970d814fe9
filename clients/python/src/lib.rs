//! The native half of the Python package `stoker`: a typed interface to lakes, queries and sample streams.
//!
//! Two modules are built from this crate: `stoker._client`, which has no engine and reads through servers, and
//! `stoker_engine._native`, which has one. A process loads one of them. What needs the engine asks the trait [`Engine`].
//!
//! ```text
//! Connection ──sql──────────► QueryResult ──next──► ArrowArray (C data interface)
//!     │      ──write────────► a new table version
//!     └──────plan_stream────► StreamHandle ──Session──next──► Batch (C data interface)
//! ```
//!
//! Every method that waits releases the interpreter lock and handles Ctrl-C within 100 ms ([`runtime`]). Objects
//! survive `fork`: the native threads park while the process forks ([`pause`]), and the child does not touch what
//! belongs to the parent process but opens it again on first use ([`fork`]). Arrow data crosses between Rust and Python
//! through the Arrow C data interface, without copies ([`arrow_export`], [`arrow_import`]). Documentation for users is
//! in the Python package, whose modules wrap each class here.

mod arrow_export;
mod arrow_import;
mod batch;
mod batch_columns;
mod column_shapes;
mod column_writer;
mod command;
mod compression;
mod connection;
mod decode_request;
mod dlpack;
mod engine;
mod exceptions;
mod exit;
mod fork;
mod image_request;
mod ingest;
mod kept_session;
mod media_request;
mod params;
mod pause;
mod python_decoder;
mod query_result;
mod runtime;
mod session;
mod session_request;
mod stream_handle;
mod table_info;
mod text_request;
mod ticker;
mod values;
mod write;

use pyo3::prelude::*;
use stoker_session::CustomDecoder;

pub use engine::{ColumnRequest, ColumnWork, Engine, LakeOptions, OpenColumn};
pub use ingest::{IngestOutcome, IngestPreview, IngestSkipped, IngestSummary, IngestWatch};

/// Fills a native module: adds all classes and functions, and makes the engine, if there is one, that of this process.
///
/// # Errors
/// Errors of the interpreter.
pub fn register(module: &Bound<'_, PyModule>, engine: Option<&'static dyn Engine>) -> PyResult<()> {
    if let Some(engine) = engine {
        engine::install(engine);
    }
    pause::register(module.py())?;
    exit::register(module.py())?;
    CustomDecoder::set_loader(python_decoder::load);
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(column_shapes::column_shapes, module)?)?;
    module.add_function(wrap_pyfunction!(command::main, module)?)?;
    module.add_function(wrap_pyfunction!(decode_request::check_decoder, module)?)?;
    module.add_function(wrap_pyfunction!(params::is_change, module)?)?;
    module.add_function(wrap_pyfunction!(params::numbered_params, module)?)?;
    module.add_function(wrap_pyfunction!(params::placeholders, module)?)?;
    module.add_function(wrap_pyfunction!(params::params_json, module)?)?;
    module.add_function(wrap_pyfunction!(text_request::read_tokenizer, module)?)?;
    module.add_class::<arrow_export::ArrowArray>()?;
    module.add_class::<arrow_export::ArrowSchema>()?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<batch::BatchPlace>()?;
    module.add_class::<column_writer::ColumnWriter>()?;
    module.add_class::<connection::Connection>()?;
    module.add_class::<query_result::QueryResult>()?;
    module.add_class::<session::Session>()?;
    module.add_class::<stream_handle::StreamHandle>()?;
    module.add_class::<table_info::TableInfo>()?;
    module.add_class::<text_request::TextTokenizer>()?;
    Ok(())
}
