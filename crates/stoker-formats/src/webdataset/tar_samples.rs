//! Groups the members of an archive to samples.

use std::ops::Range;

use super::member_name::{self, MemberName};
use super::tar_reader::{MemberContent, TarMember, TarReader};
use crate::{Error, Result};

/// The most fields of a sample.
pub(super) const FIELDS_MAX: usize = 4096;
/// The bytes that a field takes beside its name and its value.
const FIELD_BYTES: usize = 64;
/// The memory that is kept from one sample to the next.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// The most bytes of a key that a message shows.
const KEY_BYTES_SHOWN: usize = 256;

/// Members that follow one another and have one key.
#[derive(Debug, Default)]
pub(super) struct TarSample {
    /// The key, which is UTF-8 if there is no problem.
    pub key: Vec<u8>,
    /// The fields, in the order of the archive.
    pub fields: Vec<SampledMember>,
    /// Why the sample cannot become a row.
    pub problem: Option<String>,
    data: Vec<u8>,
}

/// A field of a sample.
#[derive(Debug)]
pub(super) struct SampledMember {
    /// The name of the field.
    pub field: String,
    data: Range<usize>,
}

impl TarSample {
    /// Returns the bytes of a field.
    pub fn bytes(&self, member: &SampledMember) -> &[u8] {
        self.data.get(member.data.clone()).unwrap_or_default()
    }

    /// Returns the key for messages.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(self.key.get(..KEY_BYTES_SHOWN).unwrap_or(&self.key)).into_owned()
    }

    fn begin(&mut self, key: Vec<u8>) {
        self.key = key;
        self.fields.clear();
        self.problem = None;
        self.data.clear();
        self.data.shrink_to(KEPT_BYTES_MAX);
    }
}

/// The samples of an archive, in order. One sample is in memory.
#[derive(Debug)]
pub(super) struct TarSamples {
    tar: TarReader,
    sample: TarSample,
    /// The first member of the next sample, whose bytes were not read.
    next: Option<TarMember>,
    bytes_max: usize,
}

impl TarSamples {
    /// Begins an archive. Samples of more than `bytes_max` bytes have a problem, and are not held.
    pub fn new(tar: TarReader, bytes_max: usize) -> Self {
        Self { tar, sample: TarSample::default(), next: None, bytes_max }
    }

    /// Returns the number of bytes of the file, as it is stored, that were read.
    pub fn position(&self) -> u64 {
        self.tar.position()
    }

    /// Makes the error for an archive that is not what the format says.
    pub fn malformed(&self, reason: impl ToString) -> Error {
        self.tar.malformed(reason)
    }

    /// Returns the next sample, or `None` at the end.
    ///
    /// # Errors
    /// [`Error`](crate::Error) for damage after which no further member can be read.
    pub fn next(&mut self) -> Result<Option<&TarSample>> {
        let mut is_begun = false;
        while let Some(member) = self.next_member()? {
            let name = match member.content {
                MemberContent::Folder => MemberName::Skipped,
                MemberContent::File | MemberContent::Other(_) => member_name::parse(&member.name),
            };
            let (key, field) = match name {
                MemberName::Skipped => continue,
                MemberName::Field { key, field } => (key, Ok(field)),
                MemberName::Bad { key, reason } => (key, Err(reason.to_string())),
            };
            if is_begun && self.sample.key != key {
                self.next = Some(member);
                break;
            }
            if !is_begun {
                self.sample.begin(key.to_vec());
                is_begun = true;
            }
            self.add(&member, field)?;
        }
        Ok(is_begun.then_some(&self.sample))
    }

    fn next_member(&mut self) -> Result<Option<TarMember>> {
        match self.next.take() {
            Some(member) => Ok(Some(member)),
            None => self.tar.next(),
        }
    }

    /// Adds a member to the current sample.
    fn add(&mut self, member: &TarMember, field: Result<String, String>) -> Result<()> {
        if self.sample.problem.is_some() {
            return Ok(());
        }
        match field.and_then(|field| self.room_for(member, &field).map(|()| field)) {
            Ok(field) => {
                let start = self.sample.data.len();
                self.tar.read_rest(member, &mut self.sample.data)?;
                self.sample.fields.push(SampledMember { field, data: start..self.sample.data.len() });
            }
            Err(reason) => {
                self.sample.problem = Some(format!("member {}: {reason}", member.shown()));
                self.sample.fields.clear();
            }
        }
        Ok(())
    }

    /// Checks that a field can be added to the current sample.
    fn room_for(&self, member: &TarMember, field: &str) -> Result<(), String> {
        if let MemberContent::Other(what) = member.content {
            return Err(format!("it is {what}, and only files are read"));
        }
        let fields = &self.sample.fields;
        if fields.iter().any(|other| other.field == field) {
            return Err(format!("the sample has the field {field} twice"));
        }
        if fields.len() >= FIELDS_MAX {
            return Err(format!("the sample has more than {FIELDS_MAX} fields"));
        }
        let names: usize = fields.iter().map(|other| other.field.len() + FIELD_BYTES).sum();
        let taken = self.sample.data.len().saturating_add(names).saturating_add(field.len() + FIELD_BYTES);
        let total = usize::try_from(member.size).ok().and_then(|size| taken.checked_add(size));
        match total.is_some_and(|total| total <= self.bytes_max) {
            true => Ok(()),
            false => Err(format!("with its {} bytes, the sample has more than {} bytes", member.size, self.bytes_max)),
        }
    }
}
