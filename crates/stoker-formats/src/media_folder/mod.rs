//! Folders of media files: each file is a row.
//!
//! | format | files | columns |
//! |---|---|---|
//! | `audiofolder` | wav, flac, mp3, ogg, opus, m4a, aac | `audio`: the bytes |
//! | `videofolder` | mp4, mov, mkv, webm | `video`: the bytes, as an encoded video whose frames get an index |
//! | `files` | all | `bytes`, and `size`: the number of bytes as Int64 |
//!
//! More columns are `label` (Int64: the index of the class in the sorted names of classes) and `label_name`, if all files of
//! sounds or videos lie in folders of classes; `path`: the path below the folder, with `/`; and `split`, if all folders of
//! the first level have names of splits. No column is nullable. Hidden files are left out.
//!
//! A file is a row, and batches have many rows: consecutive files are one file of [`RowFiles`], whose name is that of the
//! first one. A group has at most 512 files and 64 MiB, unless one file alone is larger. A [`BadRow`](crate::BadRow) is
//! counted from the start of its group, and its reason begins with the path.
//!
//! The first bytes of sounds and videos are checked, and the index of the frames of videos. `files` takes any bytes, and is
//! used by its name only.

mod classes;
mod group;
mod magic;
mod reader;

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use stoker_columns::encoded_video::with_video_index;

use self::classes::ClassFolders;
use self::group::{MediaFile, groups};
use self::reader::{MediaReader, MediaSource};
use crate::{Error, FileFormat, Folder, FormatOptions, Result, RowFiles, RowReader};
use stoker_files::file_names::{base, ending, is_hidden};
use stoker_files::refuse_media;

/// The format of folders of sounds.
#[derive(Clone, Copy, Debug)]
pub struct AudioFolderFormat;

/// The format of folders of videos.
#[derive(Clone, Copy, Debug)]
pub struct VideoFolderFormat;

/// The format of files of any kind.
#[derive(Clone, Copy, Debug)]
pub struct AnyFilesFormat;

/// The kind of files that are rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FolderMedia {
    Audio,
    Video,
    Any,
}

/// Files with what they say of other files, as Hugging Face's folders have them.
const METADATA_FILES: [&str; 3] = ["metadata.csv", "metadata.jsonl", "metadata.parquet"];

impl FolderMedia {
    fn endings(self) -> &'static [&'static str] {
        match self {
            FolderMedia::Audio => &["wav", "flac", "mp3", "ogg", "opus", "m4a", "aac"],
            FolderMedia::Video => &["mp4", "mov", "mkv", "webm"],
            FolderMedia::Any => &[],
        }
    }

    fn is_named_only(self) -> bool {
        self == FolderMedia::Any
    }

    fn recognise(self, folder: &dyn Folder) -> Option<Vec<String>> {
        let is_row = |name: &&str| {
            let is_known = || ending(name).is_some_and(|ending| self.endings().contains(&ending.as_str()));
            !is_hidden(name) && (self == FolderMedia::Any || is_known())
        };
        let names = folder.files().iter().map(|file| file.name.as_str()).filter(is_row);
        let names: Vec<String> = names.map(str::to_string).collect();
        (!names.is_empty()).then_some(names)
    }

    fn plan(self, folder: Arc<dyn Folder>, names: &[String], options: &FormatOptions) -> Result<Box<dyn RowFiles>> {
        refuse_media(options)?;
        if self != FolderMedia::Any {
            refuse_metadata(folder.as_ref())?;
        }
        let file = |name: &String| match folder.file(name) {
            Some(file) => Ok(MediaFile { name: name.clone(), bytes: file.bytes }),
            None => Err(Error::read(name, std::io::ErrorKind::NotFound.into())),
        };
        let files = names.iter().map(file).collect::<Result<Vec<_>>>()?;
        let classes = ClassFolders::of(names, self);
        let groups = groups(files);
        let names = groups.iter().filter_map(|group| Some(group.first()?.name.clone())).collect();
        Ok(Box::new(MediaFiles {
            schema: self.schema(&classes),
            folder,
            media: self,
            classes: Arc::new(classes),
            groups,
            names,
        }))
    }

    fn schema(self, classes: &ClassFolders) -> SchemaRef {
        let bytes = |name: &str| Field::new(name, DataType::LargeBinary, false);
        let text = |name: &str| Field::new(name, DataType::Utf8, false);
        let mut fields = vec![match self {
            FolderMedia::Audio => bytes("audio"),
            FolderMedia::Video => with_video_index(&bytes("video")),
            FolderMedia::Any => bytes("bytes"),
        }];
        if classes.has_classes() {
            fields.extend([Field::new("label", DataType::Int64, false), text("label_name")]);
        }
        fields.push(text("path"));
        if classes.has_splits() {
            fields.push(text("split"));
        }
        if self == FolderMedia::Any {
            fields.push(Field::new("size", DataType::Int64, false));
        }
        Arc::new(Schema::new(fields))
    }
}

/// Refuses folders whose files have more columns than this format reads.
fn refuse_metadata(folder: &dyn Folder) -> Result<()> {
    let is_metadata = |name: &&str| METADATA_FILES.contains(&base(name));
    match folder.files().iter().map(|file| file.name.as_str()).find(is_metadata) {
        None => Ok(()),
        Some(name) => {
            let reason = "it has columns of the media files, which this format does not read; ingest the file itself, and say \
                          which of its columns has the paths of media, or move the file away";
            Err(Error::malformed(name, reason))
        }
    }
}

/// Groups of files.
#[derive(Debug)]
struct MediaFiles {
    folder: Arc<dyn Folder>,
    media: FolderMedia,
    schema: SchemaRef,
    classes: Arc<ClassFolders>,
    groups: Vec<Arc<[MediaFile]>>,
    names: Vec<String>,
}

impl RowFiles for MediaFiles {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn files(&self) -> &[String] {
        &self.names
    }

    fn read(&self, file: usize) -> Result<Box<dyn RowReader>> {
        let Some(group) = self.groups.get(file) else {
            return Err(Error::malformed("the folder", format!("it has no group {file} of files")));
        };
        Ok(Box::new(MediaReader::new(MediaSource {
            folder: self.folder.clone(),
            media: self.media,
            schema: self.schema.clone(),
            classes: self.classes.clone(),
            files: group.clone(),
        })))
    }
}

macro_rules! folder_format {
    ($format:ty, $name:literal, $media:expr) => {
        impl FileFormat for $format {
            fn name(&self) -> &'static str {
                $name
            }

            fn recognise(&self, folder: &dyn Folder) -> Option<Vec<String>> {
                $media.recognise(folder)
            }

            fn is_named_only(&self) -> bool {
                $media.is_named_only()
            }

            fn plan(
                &self,
                folder: Arc<dyn Folder>,
                files: Vec<String>,
                options: &FormatOptions,
            ) -> Result<Box<dyn RowFiles>> {
                $media.plan(folder, &files, options)
            }
        }
    };
}

folder_format!(AudioFolderFormat, "audiofolder", FolderMedia::Audio);
folder_format!(VideoFolderFormat, "videofolder", FolderMedia::Video);
folder_format!(AnyFilesFormat, "files", FolderMedia::Any);
