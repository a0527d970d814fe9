//! Archives that are damaged, that lie, or that would leave their place.

use super::*;
use crate::webdataset::npy_header::tests::{npy_file, npy_text};

/// Checks that the sample before `z` is a bad row.
fn bad_row(bytes: Vec<u8>, part: &str) {
    let rows = read("a.tar", bytes).unwrap();
    let reasons: Vec<&str> = rows.bad.iter().map(|bad| bad.reason.as_str()).collect();
    assert!(matches!(&reasons[..], [reason] if reason.contains(part)), "{reasons:?} does not contain {part}");
    assert_eq!((rows.bad[0].row, rows.batch.num_rows(), rows.damage), (0, 1, None));
}

/// Checks that an archive cannot be planned.
fn refused(name: &str, bytes: Vec<u8>, part: &str) {
    let reason = read(name, bytes).err().unwrap_or_else(|| panic!("{part}"));
    assert!(reason.starts_with(name) && reason.contains(part), "{reason} does not contain {part}");
}

#[test]
fn names_that_leave_the_folder_are_bad_rows() {
    let named = |name: &[u8]| with_header(name, EntryType::Regular, 9, JPEG);
    bad_row(named(b"../a.jpg"), "../a, member ../a.jpg: the path has the folder ..");
    bad_row(named(b"a/../../b.jpg"), "the path has the folder ..");
    bad_row(named(b"/etc/a.jpg"), "the path is absolute");
    bad_row(named(b"a\xff.jpg"), "the name is not UTF-8");
    bad_row(named(b"README"), "README, member README: the name has no ending");
    bad_row(named(b"a."), "the name has no ending");
    bad_row(named(b"a.__KEY__"), "the field has the name of the keys");
    let long = archive(&[(&format!("{}.jpg", "n/".repeat(3000)), JPEG), ("z.jpg", JPEG)]);
    bad_row(long, "the name has more than 4096 bytes");
}

#[test]
fn links_and_devices_are_bad_rows() {
    let kinds = [
        (EntryType::Symlink, "a.jpg: it is a symbolic link, and only files are read"),
        (EntryType::Link, "a hard link"),
        (EntryType::Char, "a device"),
        (EntryType::Block, "a device"),
        (EntryType::Fifo, "a pipe"),
    ];
    for (kind, part) in kinds {
        bad_row(with_header(b"a.jpg", kind, 0, b""), part);
    }
    let linked = [block(b"a.cls", EntryType::Regular, 1, b"1"), with_header(b"a.jpg", EntryType::Symlink, 0, b"")];
    bad_row(linked.concat(), "a symbolic link");
}

#[test]
fn samples_that_do_not_fit_are_bad_rows() {
    bad_row(archive(&[("a.jpg", JPEG), ("a.JPG", JPEG), ("z.jpg", PNG)]), "the sample has the field jpg twice");
    bad_row(archive(&[("a.cls", b"1"), ("z.jpg", PNG)]), "the sample has no media, which would be in jpg");
    bad_row(archive(&[("a.jpg", b"GIF89a"), ("z.jpg", PNG)]), "column jpg: expected a JPEG, PNG or WebP file");
    bad_row(archive(&[("a.mp4", b"no video"), ("z.jpg", PNG)]), "column mp4: expected a file with an index");
    bad_row(archive(&[("a.cls", b"one"), ("z.cls", b"1")]), "a, column cls: \"one\" is no int64");
    bad_row(archive(&[("a.txt", b"\xff"), ("z.txt", b"1")]), "column txt: it is not UTF-8");
    bad_row(archive(&[("a.json", b"{"), ("z.json", b"1")]), "column json: it is no JSON");
}

#[test]
fn fields_that_appear_late_are_bad_rows() {
    let bytes = archive(&[("a.cls", b"1"), ("b.cls", b"2"), ("b.txt", b"x"), ("c.cls", b"3")]);
    let folder = MemoryFolder::new([("a.tar", bytes)]);
    let options = |sampled_rows| FormatOptions { sampled_rows, ..FormatOptions::default() };
    let rows = read_all(&*plan(&WebDataset, &folder, &options(1)).unwrap(), 0, usize::MAX);
    assert_eq!((rows.batch.num_rows(), rows.bad.len(), rows.bad[0].row), (2, 1, 1));
    let expected = "b, field txt: the first 1 samples of a.tar do not have it; plan with more samples, so that it \
                    becomes a column";
    assert_eq!(rows.bad[0].reason, expected);
    let rows = read_all(&*plan(&WebDataset, &folder, &options(2)).unwrap(), 0, usize::MAX);
    assert_eq!((rows.batch.num_rows(), rows.bad.len()), (3, 0));
}

#[test]
fn other_npy_files_are_bad_rows() {
    let of = |descr: &str, shape: &str, data: &[u8]| npy_file(&npy_text(descr, shape), data);
    let good = of("<u2", "(2,)", &[0; 4]);
    let others = [
        (of("<u2", "(3,)", &[0; 6]), "uint16[3], and the first samples have uint16[2]"),
        (of("<i2", "(2,)", &[0; 4]), "int16[2], and"),
        (of("<u2", "(2,)", &[0; 3]), "3 bytes of elements instead of 4"),
        (of("|O", "(2,)", b"\x80\x04"), "Python objects, which are pickles and never read"),
        (b"x".to_vec(), "it does not begin as an NPY file"),
    ];
    for (other, part) in others {
        let folder = MemoryFolder::new([("a.tar", archive(&[("a.npy", &good), ("b.npy", &other)]))]);
        let options = FormatOptions { sampled_rows: 1, ..FormatOptions::default() };
        let rows = read_all(&*plan(&WebDataset, &folder, &options).unwrap(), 0, usize::MAX);
        assert_eq!((rows.batch.num_rows(), rows.bad.len()), (1, 1));
        assert!(rows.bad[0].reason.contains(part), "{} does not contain {part}", rows.bad[0].reason);
    }
    let lacking = archive(&[("a.npy", &good), ("a.cls", b"1"), ("b.cls", b"1")]);
    let folder = MemoryFolder::new([("a.tar", lacking)]);
    let options = FormatOptions { sampled_rows: 1, ..FormatOptions::default() };
    let rows = read_all(&*plan(&WebDataset, &folder, &options).unwrap(), 0, usize::MAX);
    assert_eq!(rows.bad[0].reason, "b, column npy: it is missing, and tensors cannot be null");
}

#[test]
fn truncated_archives_are_errors_after_their_whole_samples() {
    let bytes = archive(&[("a.txt", b"x"), ("b.txt", &[b'y'; 600]), ("c.txt", b"z")]);
    for end in 0..bytes.len() - 1023 {
        // A sample is whole when the header of the next member is read, whose size must be right.
        let whole = [1536 + 600, 3072 + 1].iter().filter(|start| end >= **start).count();
        let damage = match read("a.tar", bytes[..end].to_vec()) {
            Ok(rows) => {
                assert_eq!(rows.batch.num_rows(), whole, "{end}");
                rows.damage.unwrap()
            }
            Err(reason) => {
                assert_eq!(whole, 0, "{end}: {reason}");
                reason
            }
        };
        assert!(damage.ends_with("its end marker") || damage.ends_with("cut off, or the size lies"), "{damage}");
    }
    let gz = gzip(&bytes);
    for (name, compressed) in [("a.tar.gz", &gz), ("a.tar.zst", &zstd(&bytes))] {
        for end in 0..compressed.len() {
            let rows = read(name, compressed[..end].to_vec());
            let damage = rows.map_or_else(Some, |rows| rows.damage);
            assert!(damage.as_ref().is_some_and(|damage| damage.contains("cut off")), "{name}, {end}: {damage:?}");
        }
    }
}

#[test]
fn headers_that_lie_are_errors() {
    let sized = |size| with_header(b"a.jpg", EntryType::Regular, size, JPEG);
    refused("a.tar", sized(1 << 40), "member a.jpg: its size is 1099511627776 bytes, and the file has");
    refused("a.tar", sized(u64::MAX), "its size is 18446744073709551615 bytes");
    refused("a.tar", sized(5000), "cut off, or the size lies");
    refused("a.tar.gz", gzip(&sized(5000)), "member a.jpg: the archive is cut off");
    refused("a.tar", sized(600), "wrong checksum");
    refused("a.tar", b"this is no archive".repeat(100), "wrong checksum: this is no tar archive");
    let mut text = sized(9);
    text[124..136].copy_from_slice(b"00000000zz9\0");
    let mut header = Header::new_old();
    header.as_mut_bytes().copy_from_slice(&text[..512]);
    header.set_cksum();
    text[..512].copy_from_slice(header.as_bytes());
    refused("a.tar", text, "member a.jpg: its size is no number");
    refused("a.tar", with_header(b"a.jpg", EntryType::GNUSparse, 9, JPEG), "it is a sparse file");
    refused("a.tar", with_header(b"v", EntryType::new(b'V'), 0, b""), "it is of the unknown type 'V'");
    refused("a.tar", [archive(&[]), archive(&[("a.cls", b"1")])].concat(), "bytes follow the end marker");
    refused("a.tar.gz", gzip(&vec![0; 17 << 20]), "bytes follow the end marker");
    refused("a.tar", archive(&[]), "there are no samples");
    refused("a.tar", archive(&[("README", b"x")]), "no sample can be read; member README: the name has no ending");
    refused("a.tar.gz", archive(&[("a.cls", b"1")]), "gzip");
}

#[test]
fn extended_headers_that_lie_are_errors() {
    let pax = |records: &str| with_header(b"x", EntryType::XHeader, records.len() as u64, records.as_bytes());
    refused("a.tar", pax("10 size=9\n10 path=\n"), "a record that is none");
    refused("a.tar", pax("10 size=x\n"), "a size that is none");
    refused("a.tar", pax("11 size=12\n"), "member z.jpg: it has two sizes, 9 and 12");
    refused("a.tar", pax("22 GNU.sparse.major=1\n"), "it is a sparse file");
    refused("a.tar", pax("99999999999999999999 a=b\n"), "a record that is none");
    let global = with_header(b"g", EntryType::XGlobalHeader, 11, b"11 path=ab\n");
    refused("a.tar", global, "one name or one size");
    let long = with_header(b"L", EntryType::GNULongName, 2 << 20, &vec![b'a'; 2 << 20]);
    refused("a.tar", long, "it has 2097152 bytes, and headers may have 1048576");
    let name = block(b"L", EntryType::GNULongName, 5, b"b.jpg");
    refused("a.tar", [name.clone(), name.clone(), archive(&[("a.jpg", JPEG)])].concat(), "two of these headers");
    refused("a.tar", [name.clone(), archive(&[])].concat(), "has no member");
    refused("a.tar", [name, pax("14 path=c.jpg\n")].concat(), "it has two long names");
}

#[test]
fn bombs_take_no_memory() {
    let mut members = vec![("a.bin".to_string(), vec![0u8; 8 << 20])];
    members.extend((0..200).map(|number| (format!("b.{number}"), vec![0u8; 10_000])));
    members.push(("c.bin".to_string(), vec![1; 10]));
    let listed: Vec<(&str, &[u8])> = members.iter().map(|(name, bytes)| (name.as_str(), &bytes[..])).collect();
    let bytes = archive(&listed);
    for (name, compressed) in [("a.tar.gz", gzip(&bytes)), ("a.tar.zst", zstd(&bytes)), ("a.tar", bytes.clone())] {
        let rows = read_limited(name, compressed, 1 << 20).unwrap();
        assert_eq!((rows.batch.num_rows(), rows.bad.len(), rows.damage), (1, 2, None));
        assert_eq!(
            rows.bad[0].reason,
            "a, member a.bin: with its 8388608 bytes, the sample has more than 1048576 bytes"
        );
        assert!(rows.bad[1].reason.starts_with("b, member b.1"), "{}", rows.bad[1].reason);
    }
}

#[test]
fn samples_have_a_limited_number_of_fields() {
    let names: Vec<String> = (0..5000).map(|number| format!("a.{number}")).chain(["z.cls".into()]).collect();
    let members: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"1"[..])).collect();
    bad_row(archive(&members), "the sample has more than 4096 fields");
    let names: Vec<String> = (0..5000).map(|number| format!("{}.{number}", number / 1000)).collect();
    let members: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"1"[..])).collect();
    refused("a.tar", archive(&members), "the samples have more than 4096 fields");
}
