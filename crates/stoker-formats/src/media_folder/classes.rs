//! Classes and splits of files, which are folders.

use std::collections::BTreeMap;

use super::FolderMedia;

/// Names of split folders. They are splits if all folders of the first level have such names, as for images.
const SPLITS: [&str; 5] = ["train", "val", "valid", "validation", "test"];

/// The classes and splits of a folder.
#[derive(Debug)]
pub(super) struct ClassFolders {
    has_splits: bool,
    /// The label of each class; `None` if some file lies in no folder of a class.
    labels: Option<BTreeMap<String, i64>>,
}

/// The class and the split of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClassOf<'a> {
    pub label: i64,
    pub class: &'a str,
    pub split: &'a str,
}

impl ClassFolders {
    /// Finds the classes of files: the folders of the first level, or of the second one below those of splits.
    pub fn of(names: &[String], media: FolderMedia) -> Self {
        if media == FolderMedia::Any {
            return Self { has_splits: false, labels: None };
        }
        let is_in_split = |name: &String| name.split_once('/').is_some_and(|(first, _)| SPLITS.contains(&first));
        let has_splits = names.iter().all(is_in_split);
        let classes: Option<Vec<&str>> = names.iter().map(|name| parts(name, has_splits).1).collect();
        let labels = classes.map(|mut classes| {
            classes.sort_unstable();
            classes.dedup();
            classes.into_iter().map(str::to_string).zip(0..).collect()
        });
        Self { has_splits, labels }
    }

    pub fn has_splits(&self) -> bool {
        self.has_splits
    }

    pub fn has_classes(&self) -> bool {
        self.labels.is_some()
    }

    /// Returns the classes in the order of their labels.
    pub fn names(&self) -> Option<Vec<String>> {
        self.labels.as_ref().map(|labels| labels.keys().cloned().collect())
    }

    /// Returns the class and the split of a file that was given to [`ClassFolders::of`]. What the folder lacks is empty.
    pub fn class_of<'a>(&self, name: &'a str) -> ClassOf<'a> {
        let (split, class) = parts(name, self.has_splits);
        let class = class.filter(|_| self.has_classes()).unwrap_or_default();
        let label = self.labels.as_ref().and_then(|labels| labels.get(class)).copied().unwrap_or(0);
        ClassOf { label, class, split }
    }
}

/// Returns the split of a path, and its class.
fn parts(name: &str, has_splits: bool) -> (&str, Option<&str>) {
    let (split, rest) = if has_splits { name.split_once('/').unwrap_or(("", name)) } else { ("", name) };
    (split, rest.split_once('/').map(|(class, _)| class))
}
