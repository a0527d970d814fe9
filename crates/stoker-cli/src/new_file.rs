//! A file that appears with all of its content, or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufWriter, Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The most temporary files of killed processes beside a new file.
const TEMPORARY_MAX: u32 = 1_000;

/// A file that is being written. The bytes go to a hidden file in the same folder, which gets its name when it is finished
/// and is removed otherwise. What exists and is no regular file, such as a pipe or a device, is written directly.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    /// The hidden file; none after it was renamed, and none for what is written directly.
    temporary: Option<PathBuf>,
    out: BufWriter<File>,
}

impl NewFile {
    /// Begins a file at a path. A file that has the path keeps its content until this one is finished.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let attempted = || format!("cannot write {}", path.display());
        // A symbolic link stays, and the file that it names is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let (file, temporary) = match fs::metadata(&path) {
            Ok(found) if found.is_dir() => bail!("{} is a folder: name a file", path.display()),
            Ok(found) if !found.is_file() => (File::create(&path).with_context(attempted)?, None),
            _ => {
                let (file, temporary) = hidden(&path).with_context(attempted)?;
                (file, Some(temporary))
            }
        };
        Ok(Self { path, temporary, out: BufWriter::new(file) })
    }

    /// Stores the rest of the bytes, and gives the file its name.
    pub fn finish(mut self) -> anyhow::Result<()> {
        let attempted = || format!("cannot write {}", self.path.display());
        self.out.flush().with_context(attempted)?;
        if let Some(temporary) = &self.temporary {
            self.out.get_ref().sync_all().with_context(attempted)?;
            fs::rename(temporary, &self.path).with_context(attempted)?;
        }
        self.temporary = None;
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.out.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            fs::remove_file(temporary).ok();
        }
    }
}

/// Creates a hidden file beside a path.
fn hidden(path: &Path) -> Result<(File, PathBuf)> {
    let name = path.file_name().ok_or_else(|| Error::new(ErrorKind::InvalidInput, "the path names no file"))?;
    for number in 0..TEMPORARY_MAX {
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.{number}.part", std::process::id()));
        let temporary = path.with_file_name(hidden);
        match File::create_new(&temporary) {
            // A killed process with the number of this one left the file behind.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => return created.map(|file| (file, temporary)),
        }
    }
    Err(Error::new(ErrorKind::AlreadyExists, format!("there are {TEMPORARY_MAX} temporary files beside it")))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::path::{Path, PathBuf};

    use super::NewFile;

    /// A folder that is removed at the end of a test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("stoker-new-file-{}-{name}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn names(&self) -> Vec<String> {
            let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
            let mut names: Vec<String> = fs::read_dir(&self.0).unwrap().map(name).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    #[test]
    fn a_file_has_its_name_when_it_is_finished() {
        let folder = Folder::new("finished");
        let path = folder.0.join("a.csv");
        fs::write(&path, "old").unwrap();
        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(folder.names().len(), 2);
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(folder.names(), ["a.csv"]);
    }

    #[test]
    fn nothing_is_left_of_a_file_that_is_given_up() {
        let folder = Folder::new("dropped");
        let mut files: Vec<NewFile> = (0..2).map(|_| NewFile::create(&folder.0.join("a.csv")).unwrap()).collect();
        files.iter_mut().for_each(|file| file.write_all(b"new").unwrap());
        assert_eq!(folder.names().len(), 2);
        drop(files);
        assert_eq!(folder.names(), [""; 0]);
    }

    #[test]
    fn links_stay_and_devices_are_written_directly() {
        let folder = Folder::new("links");
        fs::write(folder.0.join("a.csv"), "old").unwrap();
        let link = folder.0.join("b.csv");
        std::os::unix::fs::symlink(folder.0.join("a.csv"), &link).unwrap();
        let mut file = NewFile::create(&link).unwrap();
        file.write_all(b"new").unwrap();
        file.finish().unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(folder.0.join("a.csv")).unwrap(), b"new");
        let mut device = NewFile::create(Path::new("/dev/null")).unwrap();
        device.write_all(b"new").unwrap();
        device.finish().unwrap();
        assert!(!Path::new("/dev/null").is_file());
    }

    #[test]
    fn paths_that_name_no_file_are_refused() {
        let folder = Folder::new("refused");
        for path in [folder.0.clone(), folder.0.join("missing/a.csv"), PathBuf::new()] {
            let error = NewFile::create(&path).expect_err("no file").to_string();
            assert!(error.contains("is a folder") || error.starts_with("cannot write "), "{error}");
        }
        assert_eq!(folder.names(), [""; 0]);
    }
}
