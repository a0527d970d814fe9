//! Writes files of the formats by hand.

use std::io::Write;

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

/// A `.npy` file of a version.
pub(crate) fn npy_version(major: u8, header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = vec![0x93, b'N', b'U', b'M', b'P', b'Y', major, 0];
    let header = format!("{header}\n");
    match major {
        1 => file.extend((header.len() as u16).to_le_bytes()),
        _ => file.extend((header.len() as u32).to_le_bytes()),
    }
    file.extend(header.bytes());
    file.extend(data);
    file
}

/// A `.npy` file in C's order. `descr` is Python's text of the type.
pub(crate) fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    npy_version(1, &format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"), data)
}

/// A `.npy` file in Fortran's order.
pub(crate) fn fortran_npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    npy_version(1, &format!("{{'descr': {descr}, 'fortran_order': True, 'shape': {shape}, }}"), data)
}

/// A member of a ZIP file, whose declared values may lie.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packed {
    pub name: Vec<u8>,
    pub data: Vec<u8>,
    pub deflated: bool,
    /// Other values than the true ones.
    pub size: Option<u64>,
    pub crc: Option<u32>,
    pub flags: u16,
    pub method: Option<u16>,
    pub offset: Option<u64>,
    /// Whether sizes have 64 bits.
    pub wide: bool,
}

impl Packed {
    pub fn stored(name: &str, data: Vec<u8>) -> Self {
        Self { name: name.into(), data, ..Self::default() }
    }

    pub fn deflated(name: &str, data: Vec<u8>) -> Self {
        Self { deflated: true, ..Self::stored(name, data) }
    }
}

fn words(file: &mut Vec<u8>, words: &[u64]) {
    words.iter().for_each(|word| file.extend((*word as u32).to_le_bytes()));
}

fn shorts(file: &mut Vec<u8>, shorts: &[usize]) {
    shorts.iter().for_each(|short| file.extend((*short as u16).to_le_bytes()));
}

/// A ZIP file, with a comment behind its directory.
pub(crate) fn zip(members: &[Packed], comment: &[u8]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for member in members {
        let mut crc = Crc::new();
        crc.update(&member.data);
        let bytes = if member.deflated {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(&member.data).unwrap();
            encoder.finish().unwrap()
        } else {
            member.data.clone()
        };
        let size = member.size.unwrap_or(member.data.len() as u64);
        let method = member.method.unwrap_or(if member.deflated { 8 } else { 0 });
        let offset = member.offset.unwrap_or(file.len() as u64);
        let crc = u64::from(member.crc.unwrap_or(crc.sum()));
        file.extend(b"PK\x03\x04");
        shorts(&mut file, &[20, member.flags.into(), method.into(), 0, 0]);
        words(&mut file, &[crc, bytes.len() as u64, size]);
        shorts(&mut file, &[member.name.len(), 0]);
        file.extend(&member.name);
        file.extend(&bytes);
        let all = u64::from(u32::MAX);
        let (extra, sizes, at) = match member.wide {
            false => (Vec::new(), [bytes.len() as u64, size], offset),
            true => {
                let mut extra = vec![7, 0, 1, 0, 99, 1, 0, 24, 0];
                [size, bytes.len() as u64, offset].iter().for_each(|size| extra.extend(size.to_le_bytes()));
                (extra, [all, all], all)
            }
        };
        directory.extend(b"PK\x01\x02");
        shorts(&mut directory, &[20, 20, member.flags.into(), method.into(), 0, 0]);
        words(&mut directory, &[crc, sizes[0], sizes[1]]);
        shorts(&mut directory, &[member.name.len(), extra.len(), 3, 0, 0, 0, 0]);
        words(&mut directory, &[at]);
        directory.extend(&member.name);
        directory.extend(&extra);
        directory.extend(b"abc");
    }
    let (offset, count) = (file.len() as u64, members.len());
    file.extend(&directory);
    file.extend(b"PK\x05\x06");
    shorts(&mut file, &[0, 0, count, count]);
    words(&mut file, &[directory.len() as u64, offset]);
    shorts(&mut file, &[comment.len()]);
    file.extend(comment);
    file
}

/// A ZIP file whose directory has sizes of 64 bits.
pub(crate) fn wide_zip(members: &[Packed]) -> Vec<u8> {
    let mut file = zip(members, b"");
    let end = file.split_off(file.len() - 22);
    let at = file.len() as u64;
    let number = |range: std::ops::Range<usize>| u64::from(u32::from_le_bytes(end[range].try_into().unwrap()));
    let count = members.len() as u64;
    file.extend(b"PK\x06\x06");
    file.extend(44u64.to_le_bytes());
    shorts(&mut file, &[45, 45]);
    words(&mut file, &[0, 0]);
    [count, count, number(12..16), number(16..20)].iter().for_each(|size| file.extend(size.to_le_bytes()));
    file.extend(b"PK\x06\x07");
    words(&mut file, &[0]);
    file.extend(at.to_le_bytes());
    words(&mut file, &[1]);
    file.extend(b"PK\x05\x06");
    shorts(&mut file, &[0, 0, 0xffff, 0xffff]);
    words(&mut file, &[u64::MAX, u64::MAX]);
    shorts(&mut file, &[0]);
    file
}

/// A safetensors file with any header.
pub(crate) fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend(data);
    file
}
