//! Statements about indexes, and the defaults of their options.

use arrow_schema::DataType;
use stoker_dialect::{CreateIndex, DropIndex, OptimizeIndex};
use stoker_lake::{IfExists, IndexKind, LakeStore, Metric, NewIndex, Table};
use stoker_text::{Analysis, LANGUAGES};
use stoker_types::{ProgressSink, SnapshotRef, StatementOutcome, TableName, to_usize};

use crate::options::Options;
use crate::{Error, Result, table_name};

/// The kinds of indexes, as they are written, with their options.
const METHODS: [(&str, &[&str]); 8] = [
    ("ivf_flat", &["num_partitions", "metric"]),
    ("ivf_pq", &["num_partitions", "num_sub_vectors", "metric"]),
    ("ivf_hnsw_sq", &["num_partitions", "m", "ef_construction", "metric"]),
    ("btree", &[]),
    ("bitmap", &[]),
    ("label_list", &[]),
    ("ngram", &[]),
    ("inverted", &["language", "stop_words"]),
];

/// The kind of an index without `USING`, as in other databases.
const METHOD_DEFAULT: &str = "btree";

/// The distances of indexes of vectors. The first is the default.
const METRICS: [(&str, Metric); 3] = [("l2", Metric::L2), ("cosine", Metric::Cosine), ("dot", Metric::Dot)];

/// The rows of a partition by default. Lance's guide recommends about as many.
const ROWS_PER_PARTITION: u64 = 4_096;
/// The rows of a partition with a graph by default. A graph is searched in far fewer steps than it has vectors.
const ROWS_PER_GRAPH: u64 = 1 << 20;
/// The most partitions by default, and the most that can be asked for.
const PARTITIONS_DEFAULT_MAX: usize = 65_536;
const PARTITIONS_MAX: usize = 1 << 20;
/// The most sub-vectors by default, and the most that can be asked for.
const SUB_VECTORS_DEFAULT_MAX: usize = 16;
const SUB_VECTORS_MAX: usize = 65_536;
/// The neighbours of a vector in a graph: fewest, default, and most.
const NUM_EDGES: [usize; 3] = [4, 20, 128];
/// The candidates that are compared while a graph is built: fewest, default, and most.
const EF_CONSTRUCTION: [usize; 3] = [4, 150, 4_096];
/// The most bytes of vectors that are read to measure the recall of a new index. The build has read as many already, and
/// reading these takes minutes at most.
const CREATE_RECALL_BYTES_MAX: u64 = 64 << 30;
/// The most bytes of vectors that are read to measure the recall after rows were added to an index. Adding a few rows takes
/// seconds, so a pass over all rows must not take longer.
const OPTIMIZE_RECALL_BYTES_MAX: u64 = 4 << 30;

/// What a statement did with an index.
#[derive(Clone, Copy)]
enum Written {
    /// It was built.
    New,
    /// Rows were added to it.
    Extended,
}

/// Executes `CREATE INDEX`.
pub(crate) async fn create(
    lake: &LakeStore,
    create: &CreateIndex,
    progress: &ProgressSink<'_>,
) -> Result<StatementOutcome> {
    let name = table_name(&create.table)?;
    if create.name.as_deref() == Some("") {
        return Err(Error::refused("CREATE INDEX", "the name of the index is empty; leave it out or choose another"));
    }
    let table = lake.table(&name, &SnapshotRef::Latest).await?;
    let (method, kind) = kind_of(&table, create)?;
    let if_exists = match (create.or_replace, create.if_not_exists) {
        (true, _) => IfExists::Replace,
        (false, true) => IfExists::Keep,
        (false, false) => IfExists::Fail,
    };
    let new = NewIndex { name: create.name.clone(), column: create.column.clone(), kind, if_exists };
    let built = lake.create_index(&name, &new, progress).await?;
    let mut outcome = StatementOutcome {
        table: Some(name.to_string()),
        version: Some(built.version),
        message: format!("index {} exists already", built.name),
        ..StatementOutcome::default()
    };
    if built.is_new {
        let table = lake.table(&name, &SnapshotRef::Version(built.version)).await?;
        outcome.num_rows = Some(table.num_rows());
        outcome.message = format!("index {} of kind {method} covers {} rows", built.name, table.num_rows());
        outcome.message += &parameters(kind);
        if kind.is_of_vectors() {
            outcome.message += &recall(&table, &built.name, Written::New, progress).await;
        }
    }
    Ok(outcome)
}

/// Executes `DROP INDEX`.
pub(crate) async fn drop(lake: &LakeStore, drop: &DropIndex) -> Result<StatementOutcome> {
    let name = table_name(&drop.table)?;
    let (version, is_dropped) = lake.drop_index(&name, &drop.name, drop.if_exists).await?;
    let message = match is_dropped {
        true => format!("index {} is dropped; older versions keep it", drop.name),
        false => format!("there is no index {}", drop.name),
    };
    Ok(outcome(name, version, message))
}

/// Executes `OPTIMIZE INDEX`.
pub(crate) async fn optimize(
    lake: &LakeStore,
    optimize: &OptimizeIndex,
    progress: &ProgressSink<'_>,
) -> Result<StatementOutcome> {
    let name = table_name(&optimize.table)?;
    let optimized = lake.optimize_indexes(&name, optimize.name.as_deref(), progress).await?;
    if optimized.names.is_empty() {
        let what =
            optimize.name.as_ref().map_or("all indexes cover".to_string(), |index| format!("index {index} covers"));
        let outcome = outcome(name, optimized.version, format!("nothing to do: {what} all rows"));
        return Ok(StatementOutcome { num_rows: Some(0), ..outcome });
    }
    let (word, verb) = if optimized.names.len() == 1 { ("index", "covers") } else { ("indexes", "cover") };
    let (names, num_rows) = (optimized.names.join(", "), optimized.num_rows);
    let mut message = format!("{word} {names} {verb} {num_rows} more rows");
    let table = lake.table(&name, &SnapshotRef::Version(optimized.version)).await?;
    for index in &optimized.names {
        message += &recall(&table, index, Written::Extended, progress).await;
    }
    Ok(StatementOutcome { num_rows: Some(num_rows), ..outcome(name, optimized.version, message) })
}

fn outcome(table: TableName, version: u64, message: String) -> StatementOutcome {
    StatementOutcome { table: Some(table.to_string()), version: Some(version), message, ..StatementOutcome::default() }
}

/// Estimates the recall of an index, and returns it as the end of a message. The index is committed, so an error of the
/// estimate is no error of the statement.
///
/// The recall of an index whose column has too many bytes is not measured. That of an index that rows were added to stays
/// what it was before.
async fn recall(table: &Table, index: &str, written: Written, progress: &ProgressSink<'_>) -> String {
    let bytes = match table.indexed_vector_bytes(index).await {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return String::new(),
        Err(error) => return format!("; the recall of {index} is not known: {error}"),
    };
    let bytes_max = match written {
        Written::New => CREATE_RECALL_BYTES_MAX,
        Written::Extended => OPTIMIZE_RECALL_BYTES_MAX,
    };
    if bytes > bytes_max {
        let text = format!(
            "; the recall of {index} was not measured, because its vectors have more than {} GiB",
            bytes_max >> 30
        );
        return match written {
            Written::New => text,
            Written::Extended => match table.keep_recall(index).await {
                Ok(Some(recall)) => format!("{text}; it was {:.1} % before", recall * 100.0),
                Ok(None) => text,
                Err(error) => format!("{text}; the one from before is not known: {error}"),
            },
        };
    }
    match table.measure_recall(index, progress).await {
        Ok(Some(recall)) => format!("; searches by {index} find {:.1} % of the nearest 10 rows", recall * 100.0),
        Ok(None) => String::new(),
        Err(error) => format!("; the recall of {index} is not known: {error}"),
    }
}

/// Returns the kind of index that a statement asks for, with the name of the kind.
fn kind_of(table: &Table, create: &CreateIndex) -> Result<(&'static str, IndexKind)> {
    let given = create.method.as_deref().unwrap_or(METHOD_DEFAULT);
    let Some((method, known)) = METHODS.iter().copied().find(|(method, _)| *method == given) else {
        let kinds = METHODS.map(|(method, _)| method).join(", ");
        return Err(Error::refused("CREATE INDEX", format!("kind {given:?} is unknown; the kinds are: {kinds}")));
    };
    let options = Options::try_new(format!("index kind {method}"), known, &create.options)?;
    let schema = table.schema();
    let Some((_, field)) = schema.column_with_name(&create.column) else {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        return Err(Error::refused(
            format!("column {:?} of {}", create.column, table.snapshot()),
            format!("there is no such column; columns: {}", names.join(", ")),
        ));
    };
    let column = TypedColumn {
        name: format!("column {} of {}", create.column, table.snapshot()),
        field_type: field.data_type(),
    };
    let partitions = |rows_each: u64| {
        let fitting = to_usize(table.num_rows() / rows_each).clamp(1, PARTITIONS_DEFAULT_MAX);
        Ok::<_, Error>(options.number("num_partitions", 1..=PARTITIONS_MAX)?.unwrap_or(fitting))
    };
    let kind = match method {
        "ivf_flat" => {
            column.dimension(method)?;
            IndexKind::IvfFlat { num_partitions: partitions(ROWS_PER_PARTITION)?, metric: metric(&options)? }
        }
        "ivf_pq" => IndexKind::IvfPq {
            num_sub_vectors: column.num_sub_vectors(&options, column.dimension(method)?)?,
            num_partitions: partitions(ROWS_PER_PARTITION)?,
            metric: metric(&options)?,
        },
        "ivf_hnsw_sq" => {
            column.dimension(method)?;
            let within = |name, [min, default, max]: [usize; 3]| {
                Ok::<_, Error>(options.number(name, min..=max)?.unwrap_or(default))
            };
            IndexKind::IvfHnswSq {
                num_partitions: partitions(ROWS_PER_GRAPH)?,
                num_edges: within("m", NUM_EDGES)?,
                ef_construction: within("ef_construction", EF_CONSTRUCTION)?,
                metric: metric(&options)?,
            }
        }
        "label_list" => {
            column.check(method, "lists", |found| matches!(found, DataType::List(_) | DataType::LargeList(_)))?;
            IndexKind::LabelList
        }
        "ngram" => {
            column.check(method, "texts", is_text)?;
            IndexKind::NGram
        }
        "inverted" => {
            column.check(method, "texts", is_text)?;
            match analysis(&options)? {
                analysis if analysis == Analysis::default() => IndexKind::Inverted,
                analysis => IndexKind::InvertedWords(analysis),
            }
        }
        "bitmap" => {
            column.check(method, "values that are no lists and no structs", |found| !found.is_nested())?;
            IndexKind::Bitmap
        }
        _ => {
            column.check(method, "values that are no lists and no structs", |found| !found.is_nested())?;
            IndexKind::BTree
        }
    };
    Ok((method, kind))
}

/// Returns the parameters of an index as part of a message.
fn parameters(kind: IndexKind) -> String {
    match kind {
        IndexKind::IvfFlat { num_partitions, .. } => format!(" in {num_partitions} partitions"),
        IndexKind::IvfPq { num_partitions, num_sub_vectors, .. } => {
            format!(" in {num_partitions} partitions, with {num_sub_vectors} sub-vectors")
        }
        IndexKind::IvfHnswSq { num_partitions, num_edges, ef_construction, .. } => {
            format!(" in {num_partitions} partitions, with m {num_edges} and ef_construction {ef_construction}")
        }
        IndexKind::BTree
        | IndexKind::Bitmap
        | IndexKind::LabelList
        | IndexKind::NGram
        | IndexKind::Inverted
        | IndexKind::InvertedWords(_) => String::new(),
    }
}

fn metric(options: &Options<'_>) -> Result<Metric> {
    let Some(given) = options.text("metric")? else { return Ok(METRICS[0].1) };
    let known = METRICS.iter().find(|(name, _)| *name == given.to_lowercase());
    known.map(|(_, metric)| *metric).ok_or_else(|| {
        let names = METRICS.map(|(name, _)| name).join(", ");
        Error::refused("CREATE INDEX", format!("metric {given:?} is unknown; the metrics are: {names}"))
    })
}

/// Returns how a full-text index splits texts into words. The options are those of `text_search`: without stop words,
/// frequent words are left out.
fn analysis(options: &Options<'_>) -> Result<Analysis> {
    let mut analysis = Analysis::default();
    let language = options.text("language")?;
    if let Some(language) = language {
        analysis = analysis.with_stems(language).ok_or_else(|| {
            let reason = format!("language {language:?} is unknown; the languages are: {}", LANGUAGES.join(", "));
            Error::refused("CREATE INDEX", reason)
        })?;
    }
    match options.switch("stop_words")? {
        Some(false) => analysis.without_stop_words().ok_or_else(|| {
            let language = language.unwrap_or("english");
            let reason = format!("the frequent words of language {language:?} are not known");
            Error::refused("CREATE INDEX", format!("{reason}; leave out stop_words = FALSE"))
        }),
        Some(true) | None => Ok(analysis),
    }
}

/// A column that is to be indexed.
struct TypedColumn<'a> {
    /// The column in errors, such as `column emb of photos@3`.
    name: String,
    field_type: &'a DataType,
}

impl TypedColumn<'_> {
    fn check(&self, method: &str, what: &str, is_fit: impl Fn(&DataType) -> bool) -> Result<()> {
        match is_fit(self.field_type) {
            true => Ok(()),
            false => Err(self.unfit(method, what)),
        }
    }

    /// Returns the number of elements of the column's vectors.
    fn dimension(&self, method: &str) -> Result<usize> {
        let unfit = || self.unfit(method, "vectors: lists of one length, of Float16, Float32 or Float64");
        let DataType::FixedSizeList(item, length) = self.field_type else { return Err(unfit()) };
        match item.data_type() {
            DataType::Float16 | DataType::Float32 | DataType::Float64 => usize::try_from(*length).map_err(|_| unfit()),
            _ => Err(unfit()),
        }
    }

    /// Returns the number of sub-vectors: the one that is given, or the largest divisor of the dimension up to the default.
    fn num_sub_vectors(&self, options: &Options<'_>, dimension: usize) -> Result<usize> {
        let divides = |number: &usize| dimension.is_multiple_of(*number);
        let Some(given) = options.number("num_sub_vectors", 1..=SUB_VECTORS_MAX)? else {
            return Ok((1..=SUB_VECTORS_DEFAULT_MAX).rev().find(divides).unwrap_or(1));
        };
        if divides(&given) && dimension > 0 {
            return Ok(given);
        }
        let divisors: Vec<String> = (1..=dimension).filter(divides).map(|number| number.to_string()).collect();
        Err(Error::refused(
            self.name.as_str(),
            format!(
                "num_sub_vectors is {given}; it must divide the {dimension} elements of a vector: {}",
                divisors.join(", ")
            ),
        ))
    }

    fn unfit(&self, method: &str, what: &str) -> Error {
        let found = self.field_type;
        Error::refused(self.name.as_str(), format!("its type is {found}, but an index of kind {method} is for {what}"))
    }
}

fn is_text(found: &DataType) -> bool {
    matches!(found, DataType::Utf8 | DataType::LargeUtf8)
}
