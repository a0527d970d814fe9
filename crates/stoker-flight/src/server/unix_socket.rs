//! The socket file that a server listens on: making it, and removing it when it is not needed any more.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use tokio::net::{UnixListener, UnixSocket, UnixStream};

use crate::server::unix_connection::UnixConnection;
use crate::unix_path::UnixPath;
use crate::{Error, Result};

/// Only the user who runs the server may connect. Whoever lets others in does so with the means of the system.
const MODE: u32 = 0o600;
/// Connections that wait to be taken, where the system allows as many: who comes when there is no room is refused.
const WAITING_MAX: u32 = 4_096;

/// A Unix socket that takes connections. Dropping it removes its file.
pub(crate) struct ListeningSocket {
    /// Dropped first: as long as the socket is open, no other file gets the number of this one.
    file: SocketFile,
    listener: UnixListener,
}

impl ListeningSocket {
    /// Listens on a path. The file of a server that was killed is replaced.
    ///
    /// # Errors
    /// A path where another server listens, or where something else lies, which is left as it is; a folder that is missing or
    /// may not be written to.
    pub async fn bind(path: UnixPath) -> Result<Self> {
        // Until this server can be connected to: of two that start at once, one must not take the other's file for a dead one's.
        let _folder = lock_folder(&path).await?;
        remove_stale(&path).await?;
        let cannot = |source| cannot_listen(&path, source);
        let socket = UnixSocket::new_stream().map_err(cannot)?;
        socket.bind(&path).map_err(cannot)?;
        let file = SocketFile::try_new(path.clone()).map_err(cannot)?;
        // Nobody can connect before it listens.
        std::fs::set_permissions(&path, Permissions::from_mode(MODE)).map_err(cannot)?;
        let listener = socket.listen(WAITING_MAX).map_err(cannot)?;
        Ok(Self { file, listener })
    }

    pub fn path(&self) -> &UnixPath {
        &self.file.path
    }

    /// Takes the next connection.
    ///
    /// # Errors
    /// The system's.
    pub async fn accept(&self) -> io::Result<UnixConnection> {
        let (io, _) = self.listener.accept().await?;
        Ok(UnixConnection::new(io))
    }
}

/// Holds off other servers that start in the same folder, until the file is dropped.
async fn lock_folder(path: &UnixPath) -> Result<File> {
    let folder = path.folder().to_path_buf();
    let lock = move || File::open(&folder).and_then(|file| file.lock().map(|()| file));
    let locked = tokio::task::spawn_blocking(lock).await.map_err(Error::internal)?;
    locked.map_err(|source| {
        let folder = path.folder().display();
        Error::invalid(format!("cannot listen on {path}: {folder} must be a folder that can be read: {source}"))
    })
}

/// Removes the file of a server that is gone.
async fn remove_stale(path: &UnixPath) -> Result<()> {
    let cannot = |source| cannot_listen(path, source);
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(cannot)?,
    };
    if !found.file_type().is_socket() {
        return Err(Error::invalid(format!(
            "cannot listen on {path}: what lies there is not a socket; remove it, or choose another path"
        )));
    }
    match UnixStream::connect(path).await.map_err(|error| (error.kind(), error)) {
        Err((io::ErrorKind::ConnectionRefused, _)) => {
            tracing::info!(%path, "replacing the socket of a server that is gone");
            std::fs::remove_file(path).map_err(cannot)
        }
        // It has so many connections that no other one can wait.
        Ok(_) | Err((io::ErrorKind::WouldBlock, _)) => {
            Err(Error::invalid(format!("another server listens on {path}; stop it, or choose another path")))
        }
        Err((_, source)) => Err(Error::invalid(format!(
            "cannot listen on {path}: whether another server listens there cannot be found out: {source}"
        ))),
    }
}

fn cannot_listen(path: &UnixPath, source: io::Error) -> Error {
    Error::invalid(format!("cannot listen on {path}: {source}"))
}

/// The file of a socket. Dropping it removes the file, unless another has taken its place.
struct SocketFile {
    path: UnixPath,
    id: FileId,
}

/// Device and number.
type FileId = (u64, u64);

impl SocketFile {
    fn try_new(path: UnixPath) -> io::Result<Self> {
        let id = file_id(&path)?;
        Ok(Self { path, id })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if file_id(&self.path).is_ok_and(|id| id == self.id) {
            // The next server replaces a file that cannot be removed, or says why it cannot.
            std::fs::remove_file(&self.path).ok();
        }
    }
}

fn file_id(path: &UnixPath) -> io::Result<FileId> {
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}
