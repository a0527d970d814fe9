//! Members become the samples that a plain model of the rule makes of them.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::webdataset::member_name::{MemberName, parse};

/// A sample: its key, and the members of its fields.
type Expected = (String, Vec<(String, Vec<u8>)>);

/// Groups neighbours with one key.
fn model(members: &[(String, String, Vec<u8>)]) -> Vec<Expected> {
    let mut samples: Vec<Expected> = Vec::new();
    for (key, field, bytes) in members {
        match samples.last_mut() {
            Some((last, fields)) if last == key => fields.push((field.clone(), bytes.clone())),
            _ => samples.push((key.clone(), vec![(field.clone(), bytes.clone())])),
        }
    }
    samples
}

proptest! {
    #[test]
    fn members_become_samples(
        members in vec(("([a-c]/){0,2}[ab]{1,2}", "[x-z](\\.[x-z])?", vec(any::<u8>(), 0..40)), 1..40),
        bytes_max in 0usize..2000,
        compressed in any::<bool>(),
    ) {
        let names: Vec<String> = members.iter().map(|(key, field, _)| format!("{key}.{field}")).collect();
        let listed: Vec<(&str, &[u8])> =
            names.iter().zip(&members).map(|(name, (_, _, bytes))| (name.as_str(), &bytes[..])).collect();
        let bytes = archive(&listed);
        let (name, bytes) = if compressed { ("a.tar.zst", zstd(&bytes)) } else { ("a.tar", bytes) };
        let expected = model(&members);
        let is_good = |(_, fields): &&Expected| {
            (1..fields.len()).all(|at| fields[..at].iter().all(|(field, _)| *field != fields[at].0))
        };
        let good: Vec<&Expected> = expected.iter().filter(is_good).collect();
        let folder = MemoryFolder::new([(name, bytes)]);
        let Ok(files) = plan(&WebDataset, &folder, &FormatOptions::default()) else {
            prop_assert!(good.is_empty());
            return Ok(());
        };
        let rows = read_all(&*files, 0, bytes_max);
        prop_assert_eq!(rows.damage, None);
        prop_assert_eq!(rows.batch.num_rows(), good.len());
        prop_assert_eq!(rows.bad.len(), expected.len() - good.len());
        for bad in &rows.bad {
            prop_assert!(!is_good(&&expected[bad.row as usize]));
        }
        for (row, (key, fields)) in good.into_iter().enumerate() {
            prop_assert_eq!(rows.batch.column(0).as_string::<i32>().value(row), key);
            let mut found = 0;
            for (column, values) in rows.batch.schema().fields().iter().zip(rows.batch.columns()).skip(1) {
                let value = fields.iter().find(|(field, _)| field == column.name()).map(|(_, bytes)| &bytes[..]);
                let values = values.as_binary::<i64>();
                prop_assert_eq!(values.is_valid(row).then(|| values.value(row)), value);
                found += usize::from(value.is_some());
            }
            prop_assert_eq!(found, fields.len());
        }
    }

    #[test]
    fn names_are_split_at_the_first_dot_of_the_base_name(name in "[a./_]{0,12}") {
        let base = name.rsplit('/').next().unwrap();
        match parse(name.as_bytes()) {
            MemberName::Field { key, field } => {
                let key = std::str::from_utf8(key).unwrap();
                prop_assert_eq!(format!("{key}.{field}"), name.clone());
                prop_assert_eq!(key.rsplit('/').next(), base.split('.').next());
            }
            MemberName::Skipped => prop_assert!(base.starts_with('.') || name.starts_with("__")),
            MemberName::Bad { .. } => {}
        }
    }
}
