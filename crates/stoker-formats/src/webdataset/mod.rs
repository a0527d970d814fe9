//! WebDataset: tar archives, also compressed, in which the members of a sample follow one another.
//!
//! ```text
//! 000/a.jpg  000/a.cls  000/a.seg.png   000/b.jpg …
//! ───┬───── TarReader: members ──► TarSamples: samples ──► TarColumns: values ──► rows
//! __key__ = "000/a", columns jpg, cls, seg.png
//! ```
//!
//! The key is the path up to the first dot of the base name, and what follows, in small letters, names the field, as in
//! the library `webdataset`. The ending of a field tells its type:
//!
//! | ending | column |
//! |---|---|
//! | jpg, jpeg, png, webp | encoded images |
//! | mp4, mov, mkv, webm | encoded videos |
//! | cls, cls2, index | int64, from decimal digits |
//! | txt, text, transcript | texts |
//! | json | texts, which are JSON |
//! | npy | tensors, or numbers, if the first samples have one type and shape; booleans become uint8 |
//! | wav, flac, mp3, ogg, opus, m4a, and all others | bytes |
//!
//! A field that a sample lacks is null. Samples without any media are bad rows if others have some, and so are samples
//! with links, devices, absolute paths or a field twice. Folders, hidden files and members like `__meta__` are skipped.
//! An archive must end with its end marker. Pickles are bytes like others, and never read.

mod columns;
mod member_name;
mod npy;
mod npy_header;
mod pax;
mod rows;
mod tar_reader;
mod tar_samples;

use std::sync::Arc;

use arrow_schema::SchemaRef;

use self::columns::{SeenFields, TarColumns};
use self::rows::TarRows;
use self::tar_reader::TarReader;
use self::tar_samples::{FIELDS_MAX, TarSamples};
use crate::decompress::{Decompressed, FileCompression};
use crate::{Error, FileFormat, Folder, FormatOptions, Result, RowFiles, RowReader};

/// The endings of archives.
const ENDINGS: [&str; 4] = [".tar", ".tar.gz", ".tgz", ".tar.zst"];
/// The number of samples from which columns are found, unless the options say another one.
const SAMPLED_ROWS: usize = 256;
/// The bytes of a file after which no further sample is looked at, unless the options say how many.
const SAMPLED_BYTES: u64 = 256 << 20;
/// The most bytes of a sample, as many as a value of a table may have.
const SAMPLE_BYTES_MAX: usize = i32::MAX as usize;

/// The format of the library `webdataset`.
#[derive(Clone, Copy, Debug)]
pub struct WebDataset;

impl FileFormat for WebDataset {
    fn name(&self) -> &'static str {
        "webdataset"
    }

    /// Looks at names only, so that a damaged archive is an error with a reason.
    fn recognise(&self, folder: &dyn Folder) -> Option<Vec<String>> {
        let is_archive = |name: &str| {
            let base = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
            !base.starts_with('.') && ENDINGS.iter().any(|ending| base.ends_with(ending))
        };
        let names = folder.files().iter().map(|file| &file.name);
        let archives: Vec<String> = names.filter(|name| is_archive(name)).cloned().collect();
        (!archives.is_empty()).then_some(archives)
    }

    /// Reads the first samples of the first file that has some.
    fn plan(&self, folder: Arc<dyn Folder>, files: Vec<String>, options: &FormatOptions) -> Result<Box<dyn RowFiles>> {
        Ok(Box::new(plan(folder, files, options, SAMPLE_BYTES_MAX)?))
    }
}

/// Archives that have the same columns.
#[derive(Debug)]
struct Archives {
    folder: Arc<dyn Folder>,
    files: Vec<String>,
    columns: Arc<TarColumns>,
    sample_bytes_max: usize,
}

fn plan(
    folder: Arc<dyn Folder>,
    files: Vec<String>,
    options: &FormatOptions,
    sample_bytes_max: usize,
) -> Result<Archives> {
    let mut problem = None;
    for file in &files {
        let mut samples = open(&*folder, file, sample_bytes_max)?;
        let seen = look(&mut samples, options, &mut problem)?;
        if seen.num_samples() > 0 {
            let columns = Arc::new(seen.columns(options, file)?);
            return Ok(Archives { folder, files, columns, sample_bytes_max });
        }
    }
    let reason = match problem {
        Some(problem) => format!("no sample can be read; {problem}"),
        None => "there are no samples".to_string(),
    };
    Err(Error::malformed(files.first().map_or("", String::as_str), reason))
}

/// Returns the fields of the first samples. Damage after the first sample is left to reading, which meets it again.
fn look(samples: &mut TarSamples, options: &FormatOptions, problem: &mut Option<String>) -> Result<SeenFields> {
    let (rows, bytes) = match options.sampled_rows {
        0 => (SAMPLED_ROWS, SAMPLED_BYTES),
        rows => (rows, u64::MAX),
    };
    let mut seen = SeenFields::default();
    while seen.num_samples() < rows && (seen.num_samples() == 0 || samples.position() < bytes) {
        match samples.next() {
            Ok(Some(sample)) => {
                if problem.is_none() {
                    problem.clone_from(&sample.problem);
                }
                seen.add(sample);
                if seen.num_fields() > FIELDS_MAX {
                    let reason = format!("the samples have more than {FIELDS_MAX} fields, which would be columns");
                    return Err(samples.malformed(reason));
                }
            }
            Ok(None) => break,
            Err(error) if seen.num_samples() == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(seen)
}

fn open(folder: &dyn Folder, file: &str, sample_bytes_max: usize) -> Result<TarSamples> {
    let bytes = folder.open(file).map_err(|source| Error::read(file, source))?;
    let source = Decompressed::new(file, bytes, FileCompression::of(file))?;
    Ok(TarSamples::new(TarReader::new(source), sample_bytes_max))
}

impl RowFiles for Archives {
    fn schema(&self) -> SchemaRef {
        self.columns.schema().clone()
    }

    fn files(&self) -> &[String] {
        &self.files
    }

    fn read(&self, file: usize) -> Result<Box<dyn RowReader>> {
        let name = self.files.get(file).ok_or_else(|| Error::malformed("", format!("there is no file {file}")))?;
        let samples = open(&*self.folder, name, self.sample_bytes_max)?;
        Ok(Box::new(TarRows::new(name, samples, self.columns.clone())?))
    }
}

#[cfg(test)]
mod tests;
