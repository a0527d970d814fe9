//! Decides which columns a table gets from files, under which names and with which types.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use stoker_columns::encoded_video::with_video_index;
use stoker_columns::{Ingest, encoded_image, encoded_video, ingest, is_encoded_image, video_index_of};
use stoker_lake::is_reserved_name;

use super::cast;
use super::options::FilesOptions;
use crate::{Error, Result};

/// The columns of the table, in order.
#[derive(Clone, Debug)]
pub(super) struct FileColumns(pub Vec<FileColumn>);

/// A column of the table.
#[derive(Clone, Debug)]
pub(super) struct FileColumn {
    /// The index of the column in the files.
    pub index: usize,
    /// The name of the column in the files.
    pub name: String,
    /// The field of the table, and how its values are made.
    pub ingest: Ingest,
}

impl FileColumns {
    /// Selects, names and converts columns of files.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for a column that does not exist, is named twice by an option, or does not fit what the
    /// options say of it; and for names that tables cannot have.
    pub fn plan(schema: &Schema, options: &FilesOptions) -> Result<Self> {
        check_names(schema, options)?;
        let is_selected = |name: &String| {
            (options.columns.is_empty() || options.columns.contains(name)) && !options.drop.contains(name)
        };
        let mut columns = Vec::new();
        for (index, field) in schema.fields().iter().enumerate().filter(|(_, field)| is_selected(field.name())) {
            let mut ingest = column(schema, field, options)?;
            ingest.field = renamed(ingest.field, table_name(field.name(), options));
            columns.push(FileColumn { index, name: field.name().clone(), ingest });
        }
        if columns.is_empty() {
            return Err(Error::option("--columns", "no column is left"));
        }
        check_table_names(&columns)?;
        Ok(Self(columns))
    }

    /// Returns the columns of the table, without indexes of videos.
    pub fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.0.iter().map(|column| column.ingest.field.clone()).collect::<Vec<_>>()))
    }
}

/// Checks that the options name columns that exist, and none of them twice.
fn check_names(schema: &Schema, options: &FilesOptions) -> Result<()> {
    let rename: Vec<&String> = options.rename.iter().map(|renamed| &renamed.from).collect();
    let cast: Vec<&String> = options.cast.iter().map(|cast| &cast.column).collect();
    let named: [(&str, Vec<&String>); 7] = [
        ("--columns", options.columns.iter().collect()),
        ("--drop", options.drop.iter().collect()),
        ("--rename", rename),
        (cast::OPTION, cast),
        ("--image", options.images.iter().collect()),
        ("--video", options.videos.iter().collect()),
        ("--audio", options.audio.iter().collect()),
    ];
    for (option, names) in &named {
        for (number, name) in names.iter().enumerate() {
            if schema.field_with_name(name).is_err() {
                let all: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
                return Err(Error::option(option, format!("there is no column {name}; columns: {}", all.join(", "))));
            }
            if names[..number].contains(name) {
                return Err(Error::option(option, format!("column {name} is named twice")));
            }
        }
    }
    // A column has one meaning.
    let mut declared = HashMap::new();
    for (option, name) in named[3..].iter().flat_map(|(option, names)| names.iter().map(move |name| (option, name))) {
        if let Some(before) = declared.insert(name, option) {
            return Err(Error::option(option, format!("column {name} is declared by {before} too")));
        }
    }
    Ok(())
}

/// Decides how a column is converted: as the options declare it, or as its kind is ingested.
fn column(schema: &Schema, field: &Field, options: &FilesOptions) -> Result<Ingest> {
    let name = field.name();
    if let Some(cast) = options.cast.iter().find(|cast| cast.column == *name) {
        return cast.ingest(field);
    }
    let (option, declared) = if options.videos.contains(name) || video_index_of(field).is_some() {
        ("--video", encoded_video::declared(field))
    } else if options.images.contains(name) && !is_encoded_image(field) {
        ("--image", encoded_image::declared(field))
    } else if options.audio.contains(name) && !is_binary(field.data_type()) {
        let mut files = encoded_image::declared(field);
        files.field = Field::new(name, DataType::LargeBinary, field.is_nullable());
        ("--audio", files)
    } else {
        return Ok(ingest(schema, field, true));
    };
    match declared.conversion.accepts(&declared.field, field.data_type()) {
        true => Ok(declared),
        false => {
            let (expected, found) = (declared.conversion.expected(&declared.field), field.data_type());
            Err(Error::option(option, format!("column {name}: expected {expected}, found {found}")))
        }
    }
}

fn is_binary(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// Returns the name of a column in the table: the one of the options or, because tables have no names with dots, its own
/// with `_` for each dot.
fn table_name(name: &str, options: &FilesOptions) -> String {
    let renamed = options.rename.iter().find(|renamed| renamed.from == name);
    renamed.map_or_else(|| name.replace('.', "_"), |renamed| renamed.to.clone())
}

/// Returns a field under another name. Videos get the column of their indexes anew, which has the name of the videos.
fn renamed(field: Field, name: String) -> Field {
    if *field.name() == name {
        return field;
    }
    let is_video = video_index_of(&field).is_some();
    let field = field.with_name(name);
    if is_video { with_video_index(&field) } else { field }
}

/// Checks that the table can have columns with these names.
fn check_table_names(columns: &[FileColumn]) -> Result<()> {
    let mut taken: HashMap<&str, &str> = HashMap::new();
    for FileColumn { name: from, ingest, .. } in columns {
        let name = ingest.field.name();
        let advice = format!("give the column another name, as in --rename {from}=NAME");
        let wrong = if name.is_empty() {
            format!("column {from:?} has no name")
        } else if name.contains('.') {
            format!("a column of a table has no dots in its name, as {name} has")
        } else if is_reserved_name(name) {
            format!("the name {name} is reserved for what scans and searches add to rows")
        } else if let Some(before) = taken.insert(name, from) {
            format!("the columns {before} and {from} would both be named {name}")
        } else {
            continue;
        };
        return Err(Error::option("--rename", format!("{wrong}; {advice}")));
    }
    Ok(())
}
