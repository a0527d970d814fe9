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
//! The first bytes of sounds and videos are checked, and the index of the frames of videos. `files` takes any bytes, and is
//! used by its name only.

mod classes;
mod magic;
mod reader;

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use stoker_columns::encoded_video::with_video_index;

use self::classes::ClassFolders;
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

    fn plan(self, folder: Arc<dyn Folder>, names: Vec<String>, options: &FormatOptions) -> Result<Box<dyn RowFiles>> {
        refuse_media(options)?;
        if self != FolderMedia::Any {
            refuse_metadata(folder.as_ref())?;
        }
        let classes = ClassFolders::of(&names, self);
        let schema = self.schema(&classes);
        let source = Arc::new(MediaSource { folder, media: self, schema, classes });
        Ok(Box::new(MediaFiles { source, names }))
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

/// Files, each of which is a row.
#[derive(Debug)]
struct MediaFiles {
    source: Arc<MediaSource>,
    names: Vec<String>,
}

impl RowFiles for MediaFiles {
    fn schema(&self) -> SchemaRef {
        self.source.schema.clone()
    }

    fn files(&self) -> &[String] {
        &self.names
    }

    fn classes(&self) -> Option<Vec<String>> {
        self.source.classes.names()
    }

    fn read(&self, file: usize) -> Result<Box<dyn RowReader>> {
        let Some(name) = self.names.get(file) else {
            return Err(Error::malformed("the folder", format!("it has no file {file}")));
        };
        Ok(Box::new(MediaReader::new(self.source.clone(), name)))
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
                $media.plan(folder, files, options)
            }
        }
    };
}

folder_format!(AudioFolderFormat, "audiofolder", FolderMedia::Audio);
folder_format!(VideoFolderFormat, "videofolder", FolderMedia::Video);
folder_format!(AnyFilesFormat, "files", FolderMedia::Any);
