//! Distinguishes folders of splits from folders of classes.

use std::collections::BTreeSet;
use std::path::Path;

use crate::{Error, Result, Splits};

/// Names of split folders. They are splits if all folders of the first level have such names.
const SPLITS: [&str; 5] = ["train", "val", "valid", "validation", "test"];

/// Names of split folders in many data sets; upper and lower case are equal. A folder is not a split because of such a
/// name alone.
const LOOK_LIKE_SPLITS: [&str; 18] = [
    "train",
    "training",
    "trainval",
    "val",
    "valid",
    "validation",
    "test",
    "testing",
    "dev",
    "devel",
    "eval",
    "evaluation",
    "holdout",
    "extra",
    "unlabeled",
    "unlabelled",
    "train_extra",
    "test_extra",
];

/// The folders of the first level, and the images below them.
pub(super) struct FirstLevel<'a> {
    /// The names of the folders.
    pub folders: BTreeSet<&'a str>,
    /// The paths of all images, below the listed folder.
    pub images: Vec<&'a str>,
}

impl FirstLevel<'_> {
    /// Returns the splits, or `None` when the folders are classes.
    ///
    /// # Errors
    /// [`Error::Layout`] for folders that could be either, and for folders with images that are none of the named
    /// splits; [`Error::InvalidOption`] for a named split without a folder.
    pub fn splits(&self, dir: &Path, option: &Splits) -> Result<Option<BTreeSet<String>>> {
        let names = |folders: &BTreeSet<&str>| folders.iter().map(ToString::to_string).collect();
        match option {
            Splits::None => Ok(None),
            Splits::Named(splits) => self.named(dir, splits).map(Some),
            Splits::Auto if !self.folders.is_empty() && self.folders.iter().all(|name| SPLITS.contains(name)) => {
                Ok(Some(names(&self.folders)))
            }
            Splits::Auto => self.refuse_look_alikes(dir).map(|()| None),
        }
    }

    fn named(&self, dir: &Path, splits: &[String]) -> Result<BTreeSet<String>> {
        let known: BTreeSet<String> = splits.iter().cloned().collect();
        if let Some(split) = known.iter().find(|split| !self.folders.contains(split.as_str())) {
            let folders = self.folders.iter().copied().collect::<Vec<_>>().join(", ");
            let reason = format!("there is no folder {split} in {}; folders: {folders}", dir.display());
            return Err(Error::option("--splits", reason));
        }
        match self.with_images().into_iter().find(|folder| !known.contains(*folder)) {
            None => Ok(known),
            Some(folder) => {
                let reason = format!("the folder {folder} has images and is not among the given splits; name it too");
                Err(Error::Layout { path: dir.join(folder), reason })
            }
        }
    }

    /// Refuses two or more folders with names of splits, and one such folder whose images are all in subfolders.
    fn refuse_look_alikes(&self, dir: &Path) -> Result<()> {
        let with_images = self.with_images();
        let is_alike = |folder: &&str| LOOK_LIKE_SPLITS.contains(&folder.to_lowercase().as_str());
        let alike: Vec<&str> = with_images.iter().copied().filter(is_alike).collect();
        if alike.len() < 2 && !alike.iter().any(|folder| self.has_folders_only(folder)) {
            return Ok(());
        }
        let (alike, all) = (alike.join(", "), with_images.into_iter().collect::<Vec<_>>().join(","));
        let reason = format!(
            "folders with names of splits ({alike}) stand where classes are expected; give --splits {all} if the folders of \
             the first level are splits, with a folder for each class below them, or --no-splits if they are classes"
        );
        Err(Error::Layout { path: dir.to_path_buf(), reason })
    }

    /// Returns the folders that have images, at any depth.
    fn with_images(&self) -> BTreeSet<&str> {
        self.images.iter().filter_map(|image| image.split_once('/')).map(|(folder, _)| folder).collect()
    }

    fn has_folders_only(&self, folder: &str) -> bool {
        let below = |image: &&str| {
            image.split_once('/').filter(|(first, _)| *first == folder).map(|(_, rest)| rest.contains('/'))
        };
        self.images.iter().filter_map(below).all(|is_deeper| is_deeper)
    }
}
