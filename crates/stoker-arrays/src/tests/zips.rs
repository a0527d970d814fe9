//! ZIP files that are wrong.

use super::written::{Packed, fortran_npy, npy, wide_zip, zip};
use super::{MemoryFolder, refuses};
use crate::NumpyFormat;

fn refuses_zip(file: Vec<u8>, texts: &[&str]) {
    refuses(&NumpyFormat, MemoryFolder::new([("x.npz", file)]), texts);
}

fn member() -> Packed {
    Packed::deflated("x.npy", npy("'|u1'", "(50,)", &[7; 50]))
}

#[test]
fn members_that_lie() {
    let crc = Packed { crc: Some(1), ..member() };
    refuses_zip(zip(std::slice::from_ref(&crc), b""), &["x.npz", "checksum of the member is wrong"]);
    refuses_zip(zip(&[Packed { deflated: false, ..crc }], b""), &["checksum"]);
    let size = member().data.len() as u64;
    refuses_zip(zip(&[Packed { size: Some(size + 1), ..member() }], b""), &["x.npz: x.npy", "51 bytes follow"]);
    refuses_zip(zip(&[Packed { size: Some(size - 1), ..member() }], b""), &["x.npz: x.npy", "49 bytes follow"]);
    let longer = npy("'|u1'", "(51,)", &[7; 50]);
    refuses_zip(zip(&[Packed { size: Some(size + 1), data: longer, ..member() }], b""), &["ends before the size"]);
    let shorter = npy("'|u1'", "(49,)", &[7; 50]);
    refuses_zip(zip(&[Packed { size: Some(size - 1), data: shorter, ..member() }], b""), &["more bytes than"]);
    refuses_zip(zip(&[Packed { size: Some(1 << 31), ..member() }], b""), &["bytes cannot hold"]);
    refuses_zip(zip(&[Packed { deflated: false, size: Some(1), ..member() }], b""), &["bytes cannot hold"]);
    refuses_zip(zip(&[Packed { method: Some(12), ..member() }], b""), &["method 12", "savez_compressed"]);
    refuses_zip(
        zip(&[Packed { method: Some(8), ..Packed::stored("x.npy", vec![7; 60]) }], b""),
        &["cannot be inflated"],
    );
    refuses_zip(zip(&[Packed { flags: 1, ..member() }], b""), &["encrypted"]);
    refuses_zip(zip(&[Packed { offset: Some(3), ..member() }], b""), &["no header where"]);
    refuses_zip(zip(&[Packed { offset: Some(1 << 40), wide: true, ..member() }], b""), &["reaches into"]);
}

#[test]
fn members_that_share_bytes() {
    let members = [member(), Packed { offset: Some(0), ..Packed::deflated("y.npy", member().data) }];
    refuses_zip(zip(&members, b""), &["reaches into what follows it"]);
}

#[test]
fn members_that_are_no_columns() {
    refuses_zip(zip(&[Packed::stored("README", vec![1])], b""), &["x.npz: README", "no .npy file"]);
    refuses_zip(zip(&[Packed { name: b"\xff.npy".to_vec(), ..member() }], b""), &["not UTF-8"]);
    refuses_zip(zip(&[member(), member()], b""), &["column x", "two arrays"]);
    refuses_zip(zip(&[], b""), &["it has no arrays"]);
    refuses_zip(zip(&[Packed::stored("x.npy", Vec::new())], b""), &["x.npz: x.npy"]);
    let short = Packed::stored("y.npy", npy("'|u1'", "(2,)", &[0; 2]));
    refuses_zip(zip(&[member(), short], b""), &["2 in y; 50 in x"]);
}

#[test]
fn arrays_in_fortrans_order_that_are_too_many_for_memory() {
    let array = fortran_npy("'|u1'", "(60, 1048576)", &vec![0; 60 << 20]);
    let members: Vec<_> = (0..5).map(|index| Packed::deflated(&format!("{index}.npy"), array.clone())).collect();
    refuses_zip(zip(&members, b""), &["x.npz: 4.npy", "too large for memory", "np.ascontiguousarray"]);
}

#[test]
fn directories_that_are_wrong() {
    let file = zip(&[member()], b"");
    refuses_zip(Vec::new(), &["no ZIP file"]);
    refuses_zip(vec![0; 1 << 17], &["no ZIP file"]);
    for length in 0..file.len() {
        refuses_zip(file[..length].to_vec(), &["no ZIP file"]);
    }
    let with = |at: usize, bytes: &[u8]| {
        let mut file = file.clone();
        let start = file.len() - at;
        file[start..start + bytes.len()].copy_from_slice(bytes);
        file
    };
    refuses_zip(with(22 - 8, &[2, 0, 2, 0]), &["fewer members"]);
    refuses_zip(with(22 - 8, &[0, 0, 0, 0]), &["behind its last member"]);
    refuses_zip(with(22 - 8, &[1, 0, 2, 0]), &["several files"]);
    refuses_zip(with(22 - 8, &[0xfe, 0xff, 0xfe, 0xff]), &["65534 members", "4096"]);
    refuses_zip(with(22 - 16, &[0xf0, 0xff, 0xff, 0]), &["does not lie in the file"]);
    refuses_zip(with(22 - 12, &[0xff, 0xff, 0xff, 0xff]), &["lacks its sizes"]);
    let mut wide = wide_zip(&[member()]);
    let end = wide.len() - 22;
    wide[end - 12..end - 4].copy_from_slice(&u64::MAX.to_le_bytes());
    refuses_zip(wide, &["cut off"]);
}
