//! What this server answers to `GetSqlInfo`: each standard code, and no other.

use std::collections::BTreeMap;

use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder};
use arrow_flight::sql::{
    SqlInfo, SqlNullOrdering, SqlOuterJoinsSupportLevel, SqlSupportedCaseSensitivity, SqlSupportedGroupBy,
    SqlSupportedResultSetConcurrency, SqlSupportedResultSetType, SqlSupportedSubqueries, SqlSupportedTransaction,
    SqlSupportedUnions, SqlSupportsConvert, SqlTransactionIsolationLevel, SupportedSqlGrammar,
};
use stoker_types::{CATALOG, SCHEMA};

use crate::{Error, MESSAGE_BYTES_MAX, Result};

/// The version of the Arrow format.
const ARROW_FORMAT: &str = "1.5";

/// Words that have a meaning in statements and are not words of SQL:2003.
const KEYWORDS: [&str; 12] = [
    "ANALYZE", "AT", "DESCRIBE", "EXPLAIN", "ILIKE", "INDEX", "LIMIT", "OFFSET", "OPTIMIZE", "QUALIFY", "SHOW",
    "VERBOSE",
];

const NUMERIC_FUNCTIONS: [&str; 33] = [
    "abs",
    "acos",
    "asin",
    "atan",
    "atan2",
    "ceil",
    "cos",
    "cosine_distance",
    "cosine_similarity",
    "cot",
    "degrees",
    "dot_product",
    "exp",
    "floor",
    "l2_distance",
    "ln",
    "log",
    "log10",
    "log2",
    "negative_inner_product",
    "pi",
    "power",
    "radians",
    "round",
    "sin",
    "sqrt",
    "tan",
    "tensor_max",
    "tensor_mean",
    "tensor_min",
    "tensor_norm",
    "tensor_std",
    "trunc",
];

const STRING_FUNCTIONS: [&str; 23] = [
    "ascii",
    "btrim",
    "character_length",
    "chr",
    "concat",
    "concat_ws",
    "ends_with",
    "initcap",
    "left",
    "lower",
    "ltrim",
    "matches",
    "octet_length",
    "regexp_like",
    "regexp_replace",
    "replace",
    "reverse",
    "right",
    "rtrim",
    "starts_with",
    "strpos",
    "substr",
    "upper",
];

const SYSTEM_FUNCTIONS: [&str; 5] = ["arrow_typeof", "coalesce", "nullif", "nvl", "nvl2"];

const DATETIME_FUNCTIONS: [&str; 6] =
    ["date_bin", "date_part", "date_trunc", "from_unixtime", "make_date", "to_timestamp"];

/// The longest name of a table.
const TABLE_NAME_BYTES_MAX: u64 = 128;

/// The limits of a server that its `GetSqlInfo` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// The longest statement, in bytes.
    pub sql_bytes: usize,
    /// The maximum number of connections; 0 if it is not known.
    pub connections: usize,
    /// The time in milliseconds for which the handle of a prepared statement is valid.
    pub handle_millis: u64,
    /// Whether statements that change the lake are refused.
    pub is_read_only: bool,
}

/// Returns the answers.
///
/// # Errors
/// `Internal` if the answers do not make a batch.
pub(crate) fn sql_info(limits: &ServerLimits) -> Result<SqlInfoData> {
    let mut infos = SqlInfoDataBuilder::new();
    for (code, value) in answers(limits) {
        match value {
            SqlInfoValue::Text(text) => infos.append(code, text),
            SqlInfoValue::Bool(value) => infos.append(code, value),
            SqlInfoValue::Bigint(value) => infos.append(code, value),
            SqlInfoValue::Bitmask(value) => infos.append(code, value),
            SqlInfoValue::Texts(texts) => infos.append(code, texts),
            SqlInfoValue::Conversions(map) => infos.append(code, map),
        }
    }
    infos.build().map_err(Error::internal)
}

/// An answer. arrow-flight has such a type, too, and does not export it.
#[derive(Clone, Debug, PartialEq)]
enum SqlInfoValue {
    Text(&'static str),
    Bool(bool),
    Bigint(i64),
    /// A number of 32 bits, or a set of bits.
    Bitmask(i32),
    Texts(&'static [&'static str]),
    Conversions(BTreeMap<i32, Vec<i32>>),
}

fn answers(limits: &ServerLimits) -> Vec<(SqlInfo, SqlInfoValue)> {
    use SqlInfo as Code;
    let no = SqlInfoValue::Bool(false);
    let yes = SqlInfoValue::Bool(true);
    // Zero means that there is no limit, or that it is not known.
    let unlimited = SqlInfoValue::Bigint(0);
    let at_most = |limit: u64| SqlInfoValue::Bigint(i64::try_from(limit).unwrap_or(i64::MAX));
    let text = SqlInfoValue::Text;
    let texts = SqlInfoValue::Texts;
    let one = |number: i32| SqlInfoValue::Bitmask(number);
    let set = |bits: &[i32]| SqlInfoValue::Bitmask(bits.iter().fold(0, |set, bit| set | 1 << bit));
    let forward_only = SqlSupportedResultSetType::SqlResultSetTypeForwardOnly as i32;
    let read_only = SqlSupportedResultSetConcurrency::SqlResultSetConcurrencyReadOnly as i32;
    vec![
        (Code::FlightSqlServerName, text("Stoker")),
        (Code::FlightSqlServerVersion, text(env!("CARGO_PKG_VERSION"))),
        (Code::FlightSqlServerArrowVersion, text(ARROW_FORMAT)),
        (Code::FlightSqlServerReadOnly, SqlInfoValue::Bool(limits.is_read_only)),
        (Code::FlightSqlServerSql, yes.clone()),
        (Code::FlightSqlServerSubstrait, no.clone()),
        (Code::FlightSqlServerSubstraitMinVersion, text("")),
        (Code::FlightSqlServerSubstraitMaxVersion, text("")),
        (Code::FlightSqlServerTransaction, one(SqlSupportedTransaction::None as i32)),
        (Code::FlightSqlServerCancel, yes.clone()),
        (Code::FlightSqlServerBulkIngestion, SqlInfoValue::Bool(!limits.is_read_only)),
        (Code::FlightSqlServerIngestTransactionsSupported, no.clone()),
        (Code::FlightSqlServerStatementTimeout, one(i32::try_from(limits.handle_millis).unwrap_or(i32::MAX))),
        (Code::FlightSqlServerTransactionTimeout, one(0)),
        (Code::SqlDdlCatalog, no.clone()),
        (Code::SqlDdlSchema, no.clone()),
        (Code::SqlDdlTable, SqlInfoValue::Bool(!limits.is_read_only)),
        (Code::SqlIdentifierCase, one(SqlSupportedCaseSensitivity::SqlCaseSensitivityLowercase as i32)),
        (Code::SqlIdentifierQuoteChar, text("\"")),
        // As in JDBC's `supportsMixedCaseQuotedIdentifiers`: quoted names keep their case, and differ by it.
        (Code::SqlQuotedIdentifierCase, one(SqlSupportedCaseSensitivity::SqlCaseSensitivityUnknown as i32)),
        (Code::SqlAllTablesAreSelectable, yes.clone()),
        (Code::SqlNullOrdering, one(SqlNullOrdering::SqlNullsSortedHigh as i32)),
        (Code::SqlKeywords, texts(&KEYWORDS)),
        (Code::SqlNumericFunctions, texts(&NUMERIC_FUNCTIONS)),
        (Code::SqlStringFunctions, texts(&STRING_FUNCTIONS)),
        (Code::SqlSystemFunctions, texts(&SYSTEM_FUNCTIONS)),
        (Code::SqlDatetimeFunctions, texts(&DATETIME_FUNCTIONS)),
        (Code::SqlSearchStringEscape, text("\\")),
        (Code::SqlExtraNameCharacters, text("")),
        (Code::SqlSupportsColumnAliasing, yes.clone()),
        (Code::SqlNullPlusNullIsNull, yes.clone()),
        (Code::SqlSupportsConvert, SqlInfoValue::Conversions(conversions())),
        (Code::SqlSupportsTableCorrelationNames, yes.clone()),
        (Code::SqlSupportsDifferentTableCorrelationNames, no.clone()),
        (Code::SqlSupportsExpressionsInOrderBy, yes.clone()),
        (Code::SqlSupportsOrderByUnrelated, yes.clone()),
        (
            Code::SqlSupportedGroupBy,
            set(&[SqlSupportedGroupBy::SqlGroupByUnrelated as i32, SqlSupportedGroupBy::SqlGroupByBeyondSelect as i32]),
        ),
        (Code::SqlSupportsLikeEscapeClause, yes.clone()),
        (Code::SqlSupportsNonNullableColumns, yes.clone()),
        (
            Code::SqlSupportedGrammar,
            set(&[SupportedSqlGrammar::SqlMinimumGrammar as i32, SupportedSqlGrammar::SqlCoreGrammar as i32]),
        ),
        // Entry level, of which statements that write are allowed only where the server allows them.
        (Code::SqlAnsi92SupportedLevel, set(&[0])),
        (Code::SqlSupportsIntegrityEnhancementFacility, no.clone()),
        (Code::SqlOuterJoinsSupportLevel, one(SqlOuterJoinsSupportLevel::SqlFullOuterJoins as i32)),
        (Code::SqlSchemaTerm, text("schema")),
        (Code::SqlProcedureTerm, text("procedure")),
        (Code::SqlCatalogTerm, text("lake")),
        (Code::SqlCatalogAtStart, yes.clone()),
        (Code::SqlSchemasSupportedActions, set(&[])),
        (Code::SqlCatalogsSupportedActions, set(&[])),
        (Code::SqlSupportedPositionedCommands, set(&[])),
        (Code::SqlSelectForUpdateSupported, no.clone()),
        (Code::SqlStoredProceduresSupported, no.clone()),
        (
            Code::SqlSupportedSubqueries,
            set(&[
                SqlSupportedSubqueries::SqlSubqueriesInComparisons as i32,
                SqlSupportedSubqueries::SqlSubqueriesInExists as i32,
                SqlSupportedSubqueries::SqlSubqueriesInIns as i32,
            ]),
        ),
        (Code::SqlCorrelatedSubqueriesSupported, yes.clone()),
        (Code::SqlSupportedUnions, set(&[SqlSupportedUnions::SqlUnion as i32, SqlSupportedUnions::SqlUnionAll as i32])),
        (Code::SqlMaxBinaryLiteralLength, at_most(limits.sql_bytes as u64)),
        (Code::SqlMaxCharLiteralLength, at_most(limits.sql_bytes as u64)),
        (Code::SqlMaxColumnNameLength, unlimited.clone()),
        (Code::SqlMaxColumnsInGroupBy, unlimited.clone()),
        (Code::SqlMaxColumnsInIndex, SqlInfoValue::Bigint(1)),
        (Code::SqlMaxColumnsInOrderBy, unlimited.clone()),
        (Code::SqlMaxColumnsInSelect, unlimited.clone()),
        (Code::SqlMaxColumnsInTable, unlimited.clone()),
        (Code::SqlMaxConnections, at_most(limits.connections as u64)),
        (Code::SqlMaxCursorNameLength, unlimited.clone()),
        (Code::SqlMaxIndexLength, unlimited.clone()),
        (Code::SqlDbSchemaNameLength, at_most(SCHEMA.len() as u64)),
        (Code::SqlMaxProcedureNameLength, unlimited.clone()),
        (Code::SqlMaxCatalogNameLength, at_most(CATALOG.len() as u64)),
        (Code::SqlMaxRowSize, at_most(MESSAGE_BYTES_MAX as u64)),
        (Code::SqlMaxRowSizeIncludesBlobs, yes.clone()),
        (Code::SqlMaxStatementLength, at_most(limits.sql_bytes as u64)),
        (Code::SqlMaxStatements, unlimited.clone()),
        (Code::SqlMaxTableNameLength, at_most(TABLE_NAME_BYTES_MAX)),
        (Code::SqlMaxTablesInSelect, unlimited.clone()),
        (Code::SqlMaxUsernameLength, unlimited),
        (
            Code::SqlDefaultTransactionIsolation,
            SqlInfoValue::Bigint(SqlTransactionIsolationLevel::SqlTransactionNone as i64),
        ),
        (Code::SqlTransactionsSupported, no.clone()),
        (
            Code::SqlSupportedTransactionsIsolationLevels,
            set(&[SqlTransactionIsolationLevel::SqlTransactionNone as i32]),
        ),
        (Code::SqlDataDefinitionCausesTransactionCommit, no.clone()),
        (Code::SqlDataDefinitionsInTransactionsIgnored, no.clone()),
        (Code::SqlSupportedResultSetTypes, set(&[forward_only])),
        (Code::SqlSupportedConcurrenciesForResultSetUnspecified, set(&[read_only])),
        (Code::SqlSupportedConcurrenciesForResultSetForwardOnly, set(&[read_only])),
        (Code::SqlSupportedConcurrenciesForResultSetScrollSensitive, set(&[])),
        (Code::SqlSupportedConcurrenciesForResultSetScrollInsensitive, set(&[])),
        (Code::SqlBatchUpdatesSupported, no.clone()),
        (Code::SqlSavepointsSupported, no.clone()),
        (Code::SqlNamedParametersSupported, no.clone()),
        (Code::SqlLocatorsUpdateCopy, no.clone()),
        (Code::SqlStoredFunctionsUsingCallSyntaxSupported, no),
    ]
}

/// The types between which CAST converts.
fn conversions() -> BTreeMap<i32, Vec<i32>> {
    let numbers = [
        SqlSupportsConvert::SqlConvertTinyint,
        SqlSupportsConvert::SqlConvertSmallint,
        SqlSupportsConvert::SqlConvertInteger,
        SqlSupportsConvert::SqlConvertBigint,
        SqlSupportsConvert::SqlConvertReal,
        SqlSupportsConvert::SqlConvertFloat,
        SqlSupportsConvert::SqlConvertDecimal,
    ]
    .map(|kind| kind as i32);
    let texts = [SqlSupportsConvert::SqlConvertVarchar as i32];
    let times = [SqlSupportsConvert::SqlConvertDate, SqlSupportsConvert::SqlConvertTimestamp].map(|kind| kind as i32);
    let all: Vec<i32> = numbers.into_iter().chain(texts).chain(times).collect();
    let of = |from: i32, to: &[i32]| (from, to.to_vec());
    let from_numbers: Vec<i32> = numbers.into_iter().chain(texts).collect();
    let from_times: Vec<i32> = times.into_iter().chain(texts).collect();
    let numbers = numbers.into_iter().map(|from| of(from, &from_numbers));
    numbers.chain(times.into_iter().map(|from| of(from, &from_times))).chain([of(texts[0], &all)]).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use stoker_types::TableName;

    use super::*;

    #[test]
    fn each_standard_code_has_an_answer_and_no_other() {
        let limits = ServerLimits { sql_bytes: 1, connections: 1, handle_millis: 1, is_read_only: true };
        let answered: Vec<i32> = answers(&limits).into_iter().map(|(code, _)| code as i32).collect();
        let codes: BTreeSet<i32> = answered.iter().copied().collect();
        assert_eq!(codes.len(), answered.len(), "a code is answered twice");
        let standard: BTreeSet<i32> = (0..10_000).filter(|code| SqlInfo::try_from(*code).is_ok()).collect();
        assert_eq!(codes, standard);
        let batch = sql_info(&limits).expect("a batch").record_batch([0, 574, 9_999]).expect("rows");
        assert_eq!(batch.num_rows(), 2);
    }

    #[test]
    fn the_longest_table_name_is_that_of_tables() {
        let name = |length: u64| TableName::try_new("a".repeat(usize::try_from(length).expect("a length")));
        assert!(name(TABLE_NAME_BYTES_MAX).is_ok());
        assert!(name(TABLE_NAME_BYTES_MAX + 1).is_err());
    }
}
