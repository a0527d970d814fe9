//! The page about a table for people.
//!
//! ```text
//! photos version 3, 1,281,167 rows, tagged v1
//! 12 fragments, 24 deleted rows, 141.93 GiB in data files
//!
//! column  type           stored as            stored  bytes/row  nulls  checksums  indexes
//! photo   encoded image  files as they are  141.9 GiB  116.2 KiB  none   yes
//! label   int64          bit packing          1.22 MiB        8 B  some   yes        label_idx (BTree)
//!
//! count nulls with: SELECT count(*) - count("label") AS nulls FROM "photos"
//! ```

use std::io::{Result, Write};

use indicatif::{HumanBytes, HumanCount};
use stoker::TableInfo;
use stoker_types::ColumnLayout;

use crate::print::print_cells;

/// The columns of the page that hold numbers, which are aligned to the right.
const NUMBERS: [&str; 2] = ["stored", "bytes/row"];

/// Prints the page.
pub(super) fn print(out: &mut impl Write, info: &TableInfo, columns: &[ColumnLayout]) -> Result<()> {
    let tags: Vec<&str> =
        info.tags.iter().filter(|(_, version)| **version == info.version).map(|(tag, _)| tag.as_str()).collect();
    let tagged = if tags.is_empty() { String::new() } else { format!(", tagged {}", tags.join(", ")) };
    writeln!(out, "{} version {}, {} rows{tagged}", info.name, info.version, HumanCount(info.num_rows))?;
    if let Some(size) = info.size {
        let (fragments, deleted) = (counted(size.num_fragments, "fragment"), size.num_deleted_rows);
        let deleted = if deleted == 0 { String::new() } else { format!(", {} deleted rows", HumanCount(deleted)) };
        writeln!(out, "{fragments}{deleted}, {} in data files", HumanBytes(size.bytes))?;
    }
    writeln!(out)?;
    print_cells(out, &cells(info, columns))?;
    for note in notes(info, columns) {
        writeln!(out, "\n{note}")?;
    }
    Ok(())
}

/// Returns the table of columns, the names of its own columns first.
fn cells(info: &TableInfo, columns: &[ColumnLayout]) -> Vec<Vec<String>> {
    let has_indexes = columns.iter().any(|column| !column.indexes.is_empty());
    let mut head = vec!["column", "type", "stored as", "stored", "bytes/row", "nulls", "checksums"];
    head.extend(has_indexes.then_some("indexes"));
    let mut rows: Vec<Vec<String>> = vec![head.iter().map(ToString::to_string).collect()];
    for column in columns {
        let mut row = vec![
            column.name.clone(),
            type_of(column),
            stored_as(column),
            HumanBytes(column.bytes).to_string(),
            column.bytes_per_row.map_or("?".into(), |bytes| HumanBytes(bytes).to_string()),
            nulls(column).to_string(),
            checksums(column, info),
        ];
        row.extend(has_indexes.then(|| column.indexes.join(", ")));
        rows.push(row);
    }
    for number in NUMBERS.iter().filter_map(|name| head.iter().position(|other| other == name)) {
        let width = rows.iter().map(|row| row[number].chars().count()).max().unwrap_or(0);
        rows.iter_mut().for_each(|row| row[number] = format!("{:>width$}", row[number]));
    }
    rows
}

/// What the values are: the kind of the column, or the type of its numbers.
fn type_of(column: &ColumnLayout) -> String {
    if column.kind == "scalar" { column.data_type.to_lowercase() } else { column.kind.clone() }
}

/// How the values lie in the data files.
fn stored_as(column: &ColumnLayout) -> String {
    let is_file = column.kind.starts_with("encoded") || column.kind == "binary";
    match column.compression.as_str() {
        "" => "nothing".into(),
        _ if column.codec.is_some() => column.codec.clone().unwrap_or_default(),
        _ if column.dense => "plain values".into(),
        "none" if is_file => "files as they are".into(),
        encodings => encodings.replace("none", "as it is").replace("general", "compressed"),
    }
}

fn nulls(column: &ColumnLayout) -> &'static str {
    match column.has_nulls {
        Some(true) => "some",
        Some(false) => "none",
        None => "?",
    }
}

fn checksums(column: &ColumnLayout, info: &TableInfo) -> String {
    match (column.unchecked_fragments, info.size) {
        (0, _) => "yes".into(),
        (unchecked, Some(size)) if unchecked >= size.num_fragments => "no".into(),
        (unchecked, Some(size)) => format!("in {} of {} fragments", size.num_fragments - unchecked, size.num_fragments),
        (unchecked, None) => format!("not in {}", counted(unchecked, "fragment")),
    }
}

/// What is to be known beside the columns.
fn notes(info: &TableInfo, columns: &[ColumnLayout]) -> Vec<String> {
    let mut notes: Vec<String> = columns.iter().filter_map(of_compression).collect();
    let of_nulls = columns.iter().find(|column| column.has_nulls != Some(false));
    if let Some(column) = of_nulls {
        let (column, table) = (quoted(&column.name), quoted(&info.name));
        notes.push(format!("count nulls with: SELECT count(*) - count({column}) AS nulls FROM {table}"));
    }
    let is_slow = |column: &&ColumnLayout| {
        let has_one_shape = column.kind.starts_with("tensor") || column.kind.starts_with("vector");
        column.heavy && !column.dense && has_one_shape && info.num_rows > 0
    };
    let slow: Vec<&str> = columns.iter().filter(is_slow).map(|column| column.name.as_str()).collect();
    let doctor = format!("`stoker doctor {}` says why, and what to do", info.name);
    if !slow.is_empty() {
        notes.push(format!("{} could be read faster: {doctor}", slow.join(", ")));
    }
    if columns.iter().any(|column| column.unchecked_fragments > 0) {
        notes.push(format!("damage to values without checksums is not noticed: {doctor}"));
    }
    notes
}

/// Describes the compression of a column with a codec, such as `x: pco:8, 1.00 MiB of 4.00 MiB (4.00 times smaller),
/// decoded at 1.20 GB/s by one thread`.
pub(crate) fn of_compression(column: &ColumnLayout) -> Option<String> {
    let (codec, plain_bytes, ratio) = (column.codec.as_ref()?, column.plain_bytes?, column.ratio()?);
    let (stored, plain) = (HumanBytes(column.bytes), HumanBytes(plain_bytes));
    let rate = column
        .decode_bytes_per_sec
        .map_or_else(String::new, |rate| format!(", decoded at {:.2} GB/s by one thread", rate as f64 / 1e9));
    let error = column.max_abs_error.map_or_else(String::new, |error| format!(", with an error of at most {error}"));
    Some(format!("{}: {codec}, {stored} of {plain} ({ratio:.2} times smaller){rate}{error}", column.name))
}

fn counted(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", HumanCount(number))
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::Schema;
    use stoker::TableInfo;
    use stoker_types::ColumnLayout;
    use stoker_types::calls::TableSize;

    use super::print;

    fn column(name: &str, kind: &str, compression: &str) -> ColumnLayout {
        ColumnLayout {
            name: name.into(),
            data_type: "Int64".into(),
            kind: kind.into(),
            heavy: false,
            bytes_per_row: Some(8),
            num_chunks: 3,
            chunk_bytes_max: 1 << 20,
            bytes: 3 << 20,
            dense: false,
            why_not_dense: Some("its values are not fixed-size lists".into()),
            compression: compression.into(),
            unchecked_fragments: 0,
            codec: None,
            plain_bytes: None,
            decode_bytes_per_sec: None,
            max_abs_error: None,
            has_nulls: Some(false),
            indexes: Vec::new(),
        }
    }

    fn page(size: Option<TableSize>, columns: &[ColumnLayout]) -> Vec<String> {
        let info = TableInfo {
            name: "photos".into(),
            version: 3,
            num_rows: 1_281_167,
            schema: Arc::new(Schema::empty()),
            tags: [("best".into(), 3), ("old".into(), 2)].into(),
            size,
        };
        let mut out = Vec::new();
        print(&mut out, &info, columns).unwrap();
        String::from_utf8(out).unwrap().lines().map(String::from).collect()
    }

    #[test]
    fn a_page_shows_sizes_and_no_fault_of_media_and_text() {
        let size = TableSize { bytes: 5 << 30, num_fragments: 12, num_deleted_rows: 24 };
        let photo = ColumnLayout { heavy: true, bytes: 5 << 30, ..column("photo", "encoded image", "none") };
        let label = ColumnLayout {
            indexes: vec!["label_idx (BTree)".into()],
            has_nulls: Some(true),
            ..column("label", "scalar", "bit packing")
        };
        let caption = column("caption", "text", "fsst, general");
        let tensor = ColumnLayout { dense: true, heavy: true, ..column("x", "tensor uint8[3]", "none") };
        let page = page(Some(size), &[photo, label, caption, tensor]);
        assert_eq!(
            page,
            [
                "photos version 3, 1,281,167 rows, tagged best",
                "12 fragments, 24 deleted rows, 5.00 GiB in data files",
                "",
                "column   type             stored as            stored  bytes/row  nulls  checksums  indexes",
                "photo    encoded image    files as they are  5.00 GiB        8 B  none   yes",
                "label    int64            bit packing        3.00 MiB        8 B  some   yes        label_idx (BTree)",
                "caption  text             fsst, compressed   3.00 MiB        8 B  none   yes",
                "x        tensor uint8[3]  plain values       3.00 MiB        8 B  none   yes",
                "",
                "count nulls with: SELECT count(*) - count(\"label\") AS nulls FROM \"photos\"",
            ]
        );
    }

    #[test]
    fn a_page_says_what_the_doctor_knows_more_about() {
        let size = Some(TableSize { bytes: 10, num_fragments: 2, num_deleted_rows: 0 });
        let slow = ColumnLayout { heavy: true, ..column("x", "tensor uint8[3]", "general") };
        let partly = ColumnLayout { unchecked_fragments: 1, ..column("y", "scalar", "none") };
        let not = ColumnLayout { unchecked_fragments: 2, has_nulls: None, ..column("z", "scalar", "none") };
        let columns = [slow, partly, not];
        let known = page(size, &columns);
        assert_eq!(known[1], "2 fragments, 10 B in data files");
        assert!(known[5].ends_with("none   in 1 of 2 fragments") && known[6].ends_with("?      no"), "{known:#?}");
        assert!(known[10].starts_with("x could be read faster: `stoker doctor photos`"), "{known:#?}");
        assert!(known[12].starts_with("damage to values without checksums is not noticed"), "{known:#?}");
        let old = page(None, &columns);
        assert!(old[1].is_empty() && old[4].ends_with("not in 1 fragment"), "{old:#?}");
    }
}
