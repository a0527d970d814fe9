//! Lines of Python that apply the remedies of findings.

use std::borrow::Cow;
use std::fmt;

use arrow_schema::DataType;

/// Reserved words of SQL, among those that are likely names of columns.
const RESERVED: [&str; 16] = [
    "all", "by", "case", "end", "from", "group", "in", "limit", "offset", "order", "select", "table", "union",
    "values", "when", "where",
];

/// Python that replaces the rows of a table by the result of a SELECT.
pub(super) fn rewrite(table: &str, select: &str) -> String {
    format!("lake.create_table({table:?}, lake.sql({select:?}), mode=\"overwrite\")")
}

/// Python that joins small fragments and leaves deleted rows out.
pub(super) fn compact(table: &str) -> String {
    format!("lake.table({table:?}).compact()")
}

/// Python that writes all fragments of the table again.
pub(super) fn compact_all(table: &str) -> String {
    format!("lake.table({table:?}).compact(rewrite_all=True)")
}

/// Python that writes the table again unchanged.
pub(super) fn rewrite_all(table: &str) -> String {
    rewrite(table, &format!("SELECT * FROM {}", quoted(table)))
}

/// Python that writes the table again with other values in one column.
pub(super) fn rewrite_with(table: &str, column: &str, value: &str) -> String {
    rewrite(table, &format!("SELECT * REPLACE ({value} AS {}) FROM {}", quoted(column), quoted(table)))
}

/// Python that writes the table again with zeros in place of null rows, and with a new column that says which rows
/// had a value.
pub(super) fn with_zeros(table: &str, column: &str, element: &DataType, length: i32) -> String {
    let flag = format!("{column}_valid");
    let (from, value, valid) = (quoted(table), quoted(column), quoted(&flag));
    let zeros = cast("$1", element, length);
    let select =
        format!("SELECT * REPLACE (coalesce({value}, {zeros}) AS {value}), {value} IS NOT NULL AS {valid} FROM {from}");
    format!(
        "import pyarrow as pa\n\
         rows = lake.sql({select:?}, params=[[0] * {length}]).to_reader()\n\
         schema = lake.table({table:?}).schema.append(pa.field({flag:?}, pa.bool_()))\n\
         lake.create_table({table:?}, rows.cast(schema), mode=\"overwrite\")"
    )
}

/// Python that writes the table again without the metadata of one column's field.
pub(super) fn without_metadata(table: &str, column: &str) -> String {
    let select = format!("SELECT * FROM {}", quoted(table));
    format!(
        "rows = lake.sql({select:?}).to_reader()\n\
         index = rows.schema.get_field_index({column:?})\n\
         schema = rows.schema.set(index, rows.schema.field(index).remove_metadata())\n\
         lake.create_table({table:?}, rows.cast(schema), mode=\"overwrite\")"
    )
}

/// Python that writes the table again with a binary column as encoded images.
pub(super) fn as_images(table: &str, column: &str) -> String {
    let select = format!("SELECT * FROM {}", quoted(table));
    format!("lake.create_table({table:?}, lake.sql({select:?}), mode=\"overwrite\", encoded_images=[{column:?}])")
}

/// Python that writes the table again with a struct column replaced by its member `bytes`, as encoded images.
pub(super) fn with_bytes_as_images(table: &str, column: &str) -> String {
    let name = quoted(column);
    let select = format!("SELECT * REPLACE ({name}['bytes'] AS {name}) FROM {}", quoted(table));
    format!("lake.create_table({table:?}, lake.sql({select:?}), mode=\"overwrite\", encoded_images=[{column:?}])")
}

/// Python that writes the table again with byte strings of one length as tensors.
pub(super) fn as_tensor_of_bytes(table: &str, column: &str) -> String {
    let select = format!("SELECT * FROM {}", quoted(table));
    format!(
        "import numpy as np\n\
         rows = lake.sql({select:?}).to_arrow()\n\
         values = np.stack([np.frombuffer(value, np.uint8) for value in rows[{column:?}].to_pylist()])\n\
         columns = {{name: rows[name] for name in rows.column_names}}\n\
         lake.create_table({table:?}, {{**columns, {column:?}: values}}, mode=\"overwrite\")"
    )
}

/// Python that writes the table again with the members of a struct column as columns.
pub(super) fn with_members<'a>(table: &str, column: &str, members: impl Iterator<Item = &'a str>) -> String {
    let name = quoted(column);
    let member = |member: &str| {
        let alias = format!("{column}_{member}");
        format!("{name}['{}'] AS {}", member.replace('\'', "''"), quoted(&alias))
    };
    let members: Vec<String> = members.map(member).collect();
    rewrite(table, &format!("SELECT * EXCLUDE ({name}), {} FROM {}", members.join(", "), quoted(table)))
}

/// Python that shows the shortest and the longest length of a column's lists.
pub(super) fn lengths(table: &str, column: &str) -> String {
    let name = quoted(column);
    let select = format!("SELECT min(array_length({name})), max(array_length({name})) FROM {}", quoted(table));
    format!("lake.sql({select:?}).to_arrow()")
}

/// SQL that casts a value to a fixed-size list of these elements.
pub(super) fn cast(value: &str, element: &DataType, length: impl fmt::Display) -> String {
    format!("arrow_cast({value}, 'FixedSizeList({length}, {element})')")
}

/// Quotes a name for SQL where needed. SQL reads names without quotes as lower case.
pub(super) fn quoted(name: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let is_word = name.bytes().all(is_plain) && name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
    if is_word && !RESERVED.contains(&name) {
        return name.into();
    }
    format!("\"{}\"", name.replace('"', "\"\"")).into()
}
