//! Finds the files among the objects of a bucket, as a walk of a folder does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use stoker_buckets::ListedObject;

use crate::stamp::Stamp;
use crate::walk::{Entry, LAKE_FOLDER, LAKES_LEFT_OUT, Rules, Walk, ending, is_wanted};

/// Returns folders and wanted files below the folder `root` of a bucket. `objects` are all that have its key as the beginning
/// of theirs, sorted. An object without bytes that has the name of a folder stands for the folder. Lakes are left out.
pub(crate) fn walk_objects(root: &Path, folder: &str, objects: &[(String, ListedObject)], rules: &Rules<'_>) -> Walk {
    let below = |key: &str| -> Option<String> {
        let below = if folder.is_empty() { key } else { key.strip_prefix(folder)?.strip_prefix('/')? };
        (!below.is_empty()).then(|| below.to_string())
    };
    let names: Vec<(String, &ListedObject)> =
        objects.iter().filter_map(|(key, object)| Some((below(key)?, object))).collect();
    let mut folders: BTreeSet<&str> = BTreeSet::new();
    for (name, _) in &names {
        let parents = name.match_indices('/').filter_map(|(at, _)| name.get(..at));
        folders.extend(parents);
    }
    let is_hidden = |name: &str| {
        name.split('/').any(|part| part.as_bytes().first().is_some_and(|byte| rules.hidden.contains(byte)))
    };
    let suffix = format!("/{LAKE_FOLDER}");
    let lakes: BTreeSet<&str> =
        folders.iter().filter_map(|name| name.strip_suffix(&suffix)).filter(|name| !is_hidden(name)).collect();
    let in_lake = |name: &str| {
        lakes.contains(name)
            || name.match_indices('/').any(|(at, _)| name.get(..at).is_some_and(|parent| lakes.contains(parent)))
    };
    let mut walk = Walk::default();
    let is_left = |name: &str| is_hidden(name) || in_lake(name);
    for name in folders.iter().filter(|name| !is_left(name)) {
        walk.entries.push(Entry { path: root.join(name), is_folder: true, stamp: Stamp::default() });
    }
    let mut left_out: BTreeMap<String, u64> = BTreeMap::new();
    for (name, object) in names.iter().filter(|(name, _)| !is_left(name)) {
        let path = root.join(name);
        if object.bytes == 0 && folders.contains(name.as_str()) {
            continue;
        }
        match is_wanted(&path, rules) {
            true => walk.entries.push(Entry { path, is_folder: false, stamp: Stamp::of_object(object) }),
            false => *left_out.entry(ending(&path)).or_default() += 1,
        }
    }
    if !lakes.is_empty() {
        // A lake in a lake is a part of it.
        let outermost = lakes.iter().filter(|lake| {
            !lake.match_indices('/').any(|(at, _)| lake.get(..at).is_some_and(|parent| lakes.contains(parent)))
        });
        left_out.insert(LAKES_LEFT_OUT.into(), outermost.count() as u64);
    }
    walk.left_out = left_out;
    walk
}
