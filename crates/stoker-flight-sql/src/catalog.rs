//! Answers about catalogs, schemas, tables, keys and types.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_flight::sql::metadata::{GetCatalogsBuilder, GetTablesBuilder, SqlInfoDataBuilder};
use arrow_flight::sql::{Command, CommandGetTables};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use stoker_types::{CATALOG, SCHEMA};

use crate::sql_info::sql_info;
use crate::type_info::type_info;
use crate::{Error, Result, ServerLimits, TABLE, VIEW, command_name, plain_schema};

/// Returns the columns of the answer to a question about the catalog; `None` for other commands.
///
/// # Errors
/// `Internal` if the answers do not make a batch.
pub fn catalog_schema(command: &Command) -> Result<Option<SchemaRef>> {
    Ok(Some(match command {
        Command::CommandGetCatalogs(_) => GetCatalogsBuilder::new().schema(),
        Command::CommandGetDbSchemas(command) => command.clone().into_builder().schema(),
        Command::CommandGetTables(command) => command.clone().into_builder().schema(),
        Command::CommandGetTableTypes(command) => command.into_builder().schema(),
        Command::CommandGetPrimaryKeys(_) => primary_keys(),
        Command::CommandGetExportedKeys(_)
        | Command::CommandGetImportedKeys(_)
        | Command::CommandGetCrossReference(_) => foreign_keys(),
        Command::CommandGetXdbcTypeInfo(_) => type_info()?.schema(),
        Command::CommandGetSqlInfo(_) => Arc::new(SqlInfoDataBuilder::schema().clone()),
        _ => return Ok(None),
    }))
}

/// Answers a question about the catalog that needs no list of tables; `None` for other commands.
///
/// # Errors
/// `InvalidRequest` for a pattern that cannot be read; `Internal` if the answers do not make a batch.
pub fn catalog_answer(command: &Command, limits: &ServerLimits) -> Result<Option<RecordBatch>> {
    let answer = match command {
        Command::CommandGetCatalogs(_) => {
            let mut catalogs = GetCatalogsBuilder::new();
            catalogs.append(CATALOG);
            catalogs.build()
        }
        Command::CommandGetDbSchemas(command) => {
            let mut schemas = command.clone().into_builder();
            schemas.append(CATALOG, SCHEMA);
            schemas.build()
        }
        Command::CommandGetTableTypes(command) => {
            let mut types = command.into_builder();
            types.append(TABLE);
            types.append(VIEW);
            types.build()
        }
        Command::CommandGetXdbcTypeInfo(command) => type_info()?.record_batch(command.data_type),
        Command::CommandGetSqlInfo(command) => command.clone().into_builder(&sql_info(limits)?).build(),
        Command::CommandGetTables(_) => return Ok(None),
        // Tables have no keys.
        command => return Ok(catalog_schema(command)?.map(RecordBatch::new_empty)),
    };
    answer.map(Some).map_err(|source| Error::invalid(format!("cannot answer {}: {source}", command_name(command))))
}

/// The answer to the question which tables there are.
pub struct TableList {
    listed: RecordBatch,
    /// The answer with columns, if these are asked for.
    described: Option<GetTablesBuilder>,
    /// Those that are views.
    views: BTreeSet<String>,
}

impl TableList {
    /// Selects those tables and views of a lake that a command asks for.
    ///
    /// # Errors
    /// `InvalidRequest` for a pattern that cannot be read.
    pub fn try_new<'a>(
        command: &CommandGetTables,
        tables: impl IntoIterator<Item = &'a str>,
        views: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self> {
        let mut listed = CommandGetTables { include_schema: false, ..command.clone() }.into_builder();
        let none = Schema::empty();
        let views: BTreeSet<String> = views.into_iter().map(str::to_string).collect();
        let of_views = views.iter().map(|name| (name.as_str(), VIEW));
        for (name, kind) in tables.into_iter().map(|name| (name, TABLE)).chain(of_views) {
            listed.append(CATALOG, SCHEMA, name, kind, &none).map_err(Error::internal)?;
        }
        let listed = listed.build().map_err(|source| Error::invalid(format!("cannot select tables: {source}")))?;
        let described = command.include_schema.then(|| command.clone().into_builder());
        Ok(Self { listed, described, views })
    }

    /// Whether a name is that of a view.
    pub fn is_view(&self, name: &str) -> bool {
        self.views.contains(name)
    }

    /// Returns the names of the tables and views whose columns are asked for.
    pub fn to_describe(&self) -> Vec<String> {
        let names = self.listed.column_by_name("table_name").filter(|_| self.described.is_some());
        let names = names.iter().flat_map(|names| names.as_string::<i32>().iter().flatten());
        names.map(str::to_string).collect()
    }

    /// Adds the columns of a table or a view.
    ///
    /// # Errors
    /// `Internal` if the columns cannot be encoded.
    pub fn describe(&mut self, name: &str, columns: &SchemaRef) -> Result<()> {
        let Some(described) = &mut self.described else { return Ok(()) };
        let kind = if self.views.contains(name) { VIEW } else { TABLE };
        described.append(CATALOG, SCHEMA, name, kind, &table_schema(name, columns)).map_err(Error::internal)
    }

    /// Returns the answer.
    ///
    /// # Errors
    /// `Internal` if the tables do not make a batch.
    pub fn answer(self) -> Result<RecordBatch> {
        match self.described {
            Some(described) => described.build().map_err(Error::internal),
            None => Ok(self.listed),
        }
    }
}

/// Returns the columns of a table as clients get them, with what is known of them.
fn table_schema(table: &str, columns: &SchemaRef) -> Schema {
    let described = |field: &FieldRef| -> FieldRef {
        let mut metadata = field.metadata().clone();
        let own = [
            ("CATALOG_NAME", CATALOG),
            ("DB_SCHEMA_NAME", SCHEMA),
            ("TABLE_NAME", table),
            ("TYPE_NAME", type_name(field.data_type())),
            ("IS_AUTO_INCREMENT", "0"),
            ("IS_CASE_SENSITIVE", if field.data_type().is_string() { "1" } else { "0" }),
            ("IS_READ_ONLY", "1"),
            ("IS_SEARCHABLE", "1"),
        ];
        metadata.extend(own.map(|(key, value)| (format!("ARROW:FLIGHT:SQL:{key}"), value.to_string())));
        Arc::new(Field::clone(field).with_metadata(metadata))
    };
    let fields: Vec<FieldRef> = plain_schema(columns).fields().iter().map(described).collect();
    Schema::new(fields)
}

/// The name of a type in CAST, or of its Arrow type if it has none there.
fn type_name(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Boolean => "BOOLEAN",
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INTEGER",
        DataType::Int64 => "BIGINT",
        DataType::UInt8 => "TINYINT UNSIGNED",
        DataType::UInt16 => "SMALLINT UNSIGNED",
        DataType::UInt32 => "INTEGER UNSIGNED",
        DataType::UInt64 => "BIGINT UNSIGNED",
        DataType::Float16 => "FLOAT16",
        DataType::Float32 => "REAL",
        DataType::Float64 => "DOUBLE",
        DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..) | DataType::Decimal256(..) => {
            "DECIMAL"
        }
        DataType::Utf8 | DataType::LargeUtf8 => "VARCHAR",
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => "BYTEA",
        DataType::Date32 | DataType::Date64 => "DATE",
        DataType::Time32(_) | DataType::Time64(_) => "TIME",
        DataType::Timestamp(..) => "TIMESTAMP",
        DataType::Duration(_) | DataType::Interval(_) => "INTERVAL",
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => "ARRAY",
        DataType::Struct(_) => "STRUCT",
        DataType::Map(..) => "MAP",
        _ => "OTHER",
    }
}

fn primary_keys() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("catalog_name", DataType::Utf8, true),
        Field::new("db_schema_name", DataType::Utf8, true),
        Field::new("table_name", DataType::Utf8, false),
        Field::new("column_name", DataType::Utf8, false),
        Field::new("key_name", DataType::Utf8, true),
        Field::new("key_sequence", DataType::Int32, false),
    ]))
}

fn foreign_keys() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("pk_catalog_name", DataType::Utf8, true),
        Field::new("pk_db_schema_name", DataType::Utf8, true),
        Field::new("pk_table_name", DataType::Utf8, false),
        Field::new("pk_column_name", DataType::Utf8, false),
        Field::new("fk_catalog_name", DataType::Utf8, true),
        Field::new("fk_db_schema_name", DataType::Utf8, true),
        Field::new("fk_table_name", DataType::Utf8, false),
        Field::new("fk_column_name", DataType::Utf8, false),
        Field::new("key_sequence", DataType::Int32, false),
        Field::new("fk_key_name", DataType::Utf8, true),
        Field::new("pk_key_name", DataType::Utf8, true),
        Field::new("update_rule", DataType::UInt8, false),
        Field::new("delete_rule", DataType::UInt8, false),
    ]))
}

#[cfg(test)]
mod tests {
    use arrow_flight::sql::{CommandGetCatalogs, CommandGetDbSchemas, CommandGetPrimaryKeys, CommandGetXdbcTypeInfo};

    use super::*;

    const LIMITS: ServerLimits = ServerLimits { sql_bytes: 10, connections: 1, handle_millis: 1, is_read_only: true };

    fn names(batch: &RecordBatch, column: &str) -> Vec<String> {
        let column = batch.column_by_name(column).expect("a column").as_string::<i32>();
        column.iter().flatten().map(str::to_string).collect()
    }

    fn answer(command: Command) -> RecordBatch {
        let answer = catalog_answer(&command, &LIMITS).expect("an answer").expect("a question about the catalog");
        let schema = catalog_schema(&command).expect("columns").expect("columns");
        assert_eq!(answer.schema(), schema);
        answer
    }

    #[test]
    fn a_lake_is_one_catalog_with_one_schema_and_no_keys() {
        assert_eq!(names(&answer(Command::CommandGetCatalogs(CommandGetCatalogs {})), "catalog_name"), ["lake"]);
        for (pattern, expected) in [(None, vec!["public"]), (Some("pub%"), vec!["public"]), (Some("x"), vec![])] {
            let db_schema_filter_pattern = pattern.map(str::to_string);
            let command = CommandGetDbSchemas { db_schema_filter_pattern, ..CommandGetDbSchemas::default() };
            assert_eq!(names(&answer(Command::CommandGetDbSchemas(command)), "db_schema_name"), expected);
        }
        let keys = CommandGetPrimaryKeys { table: "t".into(), ..CommandGetPrimaryKeys::default() };
        assert_eq!(answer(Command::CommandGetPrimaryKeys(keys)).num_rows(), 0);
        let types = answer(Command::CommandGetXdbcTypeInfo(CommandGetXdbcTypeInfo { data_type: None }));
        assert_eq!(types.num_rows(), 17);
        let bigint = answer(Command::CommandGetXdbcTypeInfo(CommandGetXdbcTypeInfo { data_type: Some(-5) }));
        assert_eq!(names(&bigint, "type_name"), ["BIGINT", "BIGINT UNSIGNED"]);
    }

    #[test]
    fn only_tables_that_are_asked_for_are_described() {
        let select = |pattern: &str, include_schema| {
            let command = CommandGetTables {
                table_name_filter_pattern: Some(pattern.into()),
                include_schema,
                ..CommandGetTables::default()
            };
            TableList::try_new(&command, ["cats", "dogs"], ["cows"]).expect("tables")
        };
        let listed = select("c_t%", false);
        assert!(listed.to_describe().is_empty());
        assert_eq!(names(&listed.answer().expect("an answer"), "table_name"), ["cats"]);
        let mut described = select("c%", true);
        assert_eq!(described.to_describe(), ["cats", "cows"]);
        let columns: SchemaRef = Arc::new(Schema::new(vec![Field::new("name", DataType::Utf8View, true)]));
        for name in described.to_describe() {
            described.describe(&name, &columns).expect("columns");
        }
        let answer = described.answer().expect("an answer");
        assert_eq!(names(&answer, "table_name"), ["cats", "cows"]);
        assert_eq!(names(&answer, "table_type"), ["TABLE", "VIEW"]);
        assert!(answer.column_by_name("table_schema").expect("columns").as_binary::<i32>().value(1).len() > 100);
        let field = table_schema("cats", &columns).field(0).clone();
        assert_eq!((field.data_type(), &*field.metadata()["ARROW:FLIGHT:SQL:TYPE_NAME"]), (&DataType::Utf8, "VARCHAR"));
    }
}
