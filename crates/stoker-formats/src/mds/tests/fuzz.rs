//! Changed indexes and shards give rows or an error; they never panic, hang, or take much memory.

use stoker_fuzz::Target;

use super::*;

const COLUMNS: [Column; 4] =
    [("a", "ndarray", None), ("j", "json", None), ("n", "int32", Some(4)), ("x", "ndarray:uint8:2,2", Some(4))];

fn samples() -> Vec<Vec<u8>> {
    let values: [&[u8]; 4] = [&[33, 4, 2, 1, 0, 0, 0, 2, 0, 0, 0], b"[1]", &[1, 0, 0, 0], &[1, 2, 3, 4]];
    vec![sample(&COLUMNS, &values), sample(&COLUMNS, &values)]
}

/// Returns whether a dataset is read to its end.
fn is_read(files: Vec<(String, Vec<u8>)>) -> bool {
    let folder = MemoryFolder::new(files);
    let Some(files) = crate::FileFormat::recognise(&Mds, &*folder) else { return false };
    let planned = crate::FileFormat::plan(&Mds, folder, files, &FormatOptions::default());
    let Ok(files) = planned else { return false };
    (0..files.files().len()).all(|file| read_all(&*files, file, 1 << 16).damage.is_none())
}

#[test]
fn shards() {
    let seeds = [shard(&samples()), shard(&samples()[..1]), shard(&[])];
    Target::new("mds-shard").seeds(seeds).run(|input| {
        // The index is right about the number of samples and the length, so that most changes are read.
        let samples = input.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize;
        let index = index(&[entry(&COLUMNS, "a.mds", input.len(), samples)]);
        is_read(vec![("index.json".into(), index), ("a.mds".into(), input.to_vec())])
    });
}

#[test]
fn indexes() {
    let bytes = shard(&samples());
    let seed = index(&[entry(&COLUMNS, "a.mds", bytes.len(), 2)]);
    let tokens = ["\"version\":", "null", "\"ndarray:int8:3\"", "\"pkl\"", "../", "\"zstd\"", "18446744073709551615"];
    Target::new("mds-index")
        .seeds([seed])
        .tokens(tokens)
        .run(|input| is_read(vec![("index.json".into(), input.to_vec()), ("a.mds".into(), bytes.clone())]));
}
