//! One ingest with its options, of any kind.

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use stoker_ingest::{
    FilesOptions, ImageFolderOptions, IngestReport, Inspection, ParquetOptions, Progress, SourceKind, ingest_files,
    ingest_imagefolder, ingest_parquet, inspect_files, inspect_imagefolder, inspect_parquet,
};
use stoker_lake::LakeStore;
use stoker_types::TableName;

use super::args::{CommonArgs, DeclaredArgs, ImageArgs, ImagefolderArgs, ParquetArgs, SourceArgs, SourceCommand};

/// Sources of a kind, and the options of their ingest.
pub(super) enum Work {
    Imagefolder(PathBuf, ImageFolderOptions),
    Parquet(Vec<PathBuf>, ParquetOptions),
    Files(Vec<PathBuf>, FilesOptions),
}

impl Work {
    /// Returns the work of a command that names the kind, and its table.
    ///
    /// # Errors
    /// Options that are not valid.
    pub fn of_command(kind: SourceCommand) -> anyhow::Result<(Self, TableName)> {
        Ok(match kind {
            SourceCommand::Imagefolder(ImagefolderArgs { dir, table, images, common }) => {
                (Self::Imagefolder(dir, common.into_image_options(Some(images))?), table)
            }
            SourceCommand::Parquet(ParquetArgs { files, table, columns, drop, images, videos, declared, common }) => {
                let options = common.into_parquet_options(declared)?;
                (Self::Parquet(files, ParquetOptions { columns, drop, images, videos, ..options }), table)
            }
        })
    }

    /// Returns the work for sources of a kind that was recognised.
    ///
    /// # Errors
    /// Options that the kind does not have.
    pub fn of_sources(
        args: SourceArgs,
        kind: SourceKind,
        common: CommonArgs,
        images: Option<ImageArgs>,
        declared: Option<DeclaredArgs>,
    ) -> anyhow::Result<Self> {
        let columns = [
            ("--columns", !args.columns.is_empty()),
            ("--drop", !args.drop.is_empty()),
            ("--image", !args.image_columns.is_empty()),
            ("--video", !args.video_columns.is_empty()),
        ];
        let files = [
            ("--rename", !args.rename.is_empty()),
            ("--cast", !args.cast.is_empty()),
            ("--audio", !args.audio_columns.is_empty()),
            ("--sample-rows", args.sample_rows.is_some()),
        ];
        let of_images = [("--images, --size and others of class folders", images.is_some())];
        let of_parquet = [("--tensor, --vector, --as-is and --schema", declared.is_some())];
        match kind {
            SourceKind::Imagefolder => {
                refuse(kind, columns.into_iter().chain(files).chain(of_parquet))?;
                let [dir] = args.sources.as_slice() else { bail!("a source of the kind {kind} is one folder") };
                Ok(Self::Imagefolder(dir.clone(), common.into_image_options(images)?))
            }
            SourceKind::Parquet => {
                refuse(kind, files.into_iter().chain(of_images))?;
                let options = ParquetOptions {
                    columns: args.columns,
                    drop: args.drop,
                    images: args.image_columns,
                    videos: args.video_columns,
                    ..common.into_parquet_options(declared.unwrap_or_default())?
                };
                Ok(Self::Parquet(args.sources, options))
            }
            SourceKind::Format(name) => {
                refuse(kind, of_images.into_iter().chain(of_parquet))?;
                let options = common.into_files_options()?;
                let sampled = args.sample_rows.and_then(|rows| usize::try_from(rows).ok());
                let options = FilesOptions {
                    format: Some(name.into()),
                    columns: args.columns,
                    drop: args.drop,
                    rename: args.rename,
                    cast: args.cast,
                    images: args.image_columns,
                    videos: args.video_columns,
                    audio: args.audio_columns,
                    sampled_rows: sampled.unwrap_or(options.sampled_rows),
                    ..options
                };
                Ok(Self::Files(args.sources, options))
            }
        }
    }

    /// Writes the table.
    pub async fn run(
        &self,
        lake: &LakeStore,
        table: &TableName,
        progress: &dyn Progress,
    ) -> anyhow::Result<IngestReport> {
        match self {
            Self::Imagefolder(dir, options) => {
                let report = ingest_imagefolder(lake, dir, table, options, progress).await;
                report.with_context(|| format!("ingesting {}", dir.display()))
            }
            Self::Parquet(files, options) => {
                ingest_parquet(lake, files, table, options, progress).await.context("ingesting Parquet files")
            }
            Self::Files(sources, options) => {
                ingest_files(lake, sources, table, options, progress).await.context("ingesting files")
            }
        }
    }

    /// Looks what would be written.
    pub async fn inspect(&self) -> anyhow::Result<Inspection> {
        Ok(match self {
            Self::Imagefolder(dir, options) => inspect_imagefolder(dir, options).await?,
            Self::Parquet(files, options) => inspect_parquet(files, options).await?,
            Self::Files(sources, options) => inspect_files(sources, options).await?,
        })
    }
}

/// Refuses options that were given and that a kind does not have.
fn refuse(kind: SourceKind, options: impl Iterator<Item = (&'static str, bool)>) -> anyhow::Result<()> {
    let given: Vec<&str> = options.filter(|(_, is_given)| *is_given).map(|(option, _)| option).collect();
    let do_not_apply = "not for sources of the kind";
    ensure!(given.is_empty(), "{} are {do_not_apply} {kind}; another kind is chosen by --as", given.join(", "));
    Ok(())
}
