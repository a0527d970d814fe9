//! Changed lines give rows or errors.

use stoker_fuzz::Target;

use super::super::JsonLines;
use crate::read_files::{MemoryFolder, plan, read_files};
use crate::{FileFormat as _, FormatOptions};

/// The tables of a batch and of a sample: some KiB of text.
const MEMORY_BYTES_MAX: usize = 32 << 20;

#[test]
fn lines() {
    let seeds = [
        "{\"a\": 1, \"b\": [1.5, null], \"c\": {\"d\": \"x\", \"image\": \"a.jpg\"}}\n{\"a\": -2, \"c\": null}\n",
        "{\"image\": \"a.jpg\", \"e\": [[{\"f\": true}]]}\n{\"image\": \"../a.jpg\", \"e\": []}\n{\"a\": 1}\n",
        "\u{feff}{\"a\": 18446744073709551615}\r\n\r\n{\"a\": 1e5}",
    ];
    let tokens = ["{\"a\":", "[", "]", "null", "1e999", "-0", "\\ud800", "\n", "{}", "\"image\": \"", "../", "true"];
    let target = Target::new("json_lines").seeds(seeds.map(|seed| seed.as_bytes().to_vec())).tokens(tokens);
    target.memory_bytes_max(MEMORY_BYTES_MAX).run(|input| {
        let folder = MemoryFolder::new([("a.jsonl", input), ("a.jpg", b"\xff\xd8\xff".as_slice())]);
        JsonLines.recognise(&folder);
        let images = FormatOptions { images: vec!["image".into()], sampled_rows: 2, ..FormatOptions::default() };
        let plain = FormatOptions { sampled_rows: 2, ..FormatOptions::default() };
        let files = plan(&JsonLines, &folder, &images).or_else(|_| plan(&JsonLines, &folder, &plain));
        let Ok(files) = files else { return false };
        let read = read_files(files.as_ref(), 100);
        let whole = read_files(files.as_ref(), 1 << 20);
        match (read, whole) {
            (Ok(read), Ok(whole)) => assert_eq!((read.rows, read.bad), (whole.rows, whole.bad)),
            (read, whole) => assert_eq!(read.is_err(), whole.is_err()),
        }
        true
    });
}
