//! The finding about light columns without checksums.

use stoker_lake::{FragmentTally, Table};
use stoker_types::Finding;

use super::column::COMPACT;
use super::example;

/// The maximum number of columns that the finding names.
const COLUMNS_MAX: usize = 10;

/// The finding about light columns, each with the fragments in which its values have no checksums. `None` without
/// such columns.
pub(super) fn finding(table: &Table, columns: &[(String, FragmentTally)]) -> Option<Finding> {
    let most = columns.iter().map(|(_, fragments)| fragments.count).max()?;
    let names: Vec<&str> = columns.iter().take(COLUMNS_MAX).map(|(name, _)| name.as_str()).collect();
    let more = match columns.len() - names.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let all = table.fragments().len();
    Some(Finding {
        column: None,
        code: "unchecked_columns".into(),
        what: format!("light columns have no checksums in {most} of {all} fragments: {}{more}", names.join(", ")),
        cost: "bytes that storage damages are not noticed: wrong labels, ids and texts are delivered".into(),
        remedy: format!(
            "{COMPACT}; rows that Stoker appends have checksums. Other writers, earlier versions of Stoker, and Lance's own \
             compaction, make none"
        ),
        example: Some(example::compact_all(table.name().as_str())),
    })
}
