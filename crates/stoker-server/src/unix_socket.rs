//! The Unix socket on which a server listens: creates its file, and removes it when the server ends.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use stoker_net::UnixPath;
use stoker_session::{Error, Result};
use tokio::net::{UnixListener, UnixSocket, UnixStream};

use crate::unix_connection::UnixConnection;

/// The mode of the socket's file: only the user who runs the server may connect. An operator who wants to admit others
/// changes the mode.
const MODE: u32 = 0o600;
/// The maximum number of connections that wait to be accepted, where the system allows as many. Further connections are
/// refused.
const WAITING_MAX: u32 = 4_096;

/// A listening Unix socket. Dropping it removes its file.
pub(crate) struct ListeningSocket {
    /// Dropped before `listener`: as long as the socket is open, no other file gets the inode number of its file.
    file: SocketFile,
    listener: UnixListener,
}

impl ListeningSocket {
    /// Listens on a path. Replaces the socket file that a killed server left.
    ///
    /// # Errors
    /// A path on which another server listens; a path at which another kind of file is, which is not changed; a folder
    /// that does not exist, or to which the process may not write.
    pub async fn bind(path: UnixPath) -> Result<Self> {
        // Holds the lock until this server accepts connections: of two servers that start at the same time, neither may
        // take the other's file for that of a dead server.
        let _folder = lock_folder(&path).await?;
        remove_stale(&path).await?;
        let cannot = |source| cannot_listen(&path, source);
        let socket = UnixSocket::new_stream().map_err(cannot)?;
        socket.bind(&path).map_err(cannot)?;
        let file = SocketFile::try_new(path.clone()).map_err(cannot)?;
        // Clients cannot connect before the socket listens, so the mode is set in time.
        std::fs::set_permissions(&path, Permissions::from_mode(MODE)).map_err(cannot)?;
        let listener = socket.listen(WAITING_MAX).map_err(cannot)?;
        Ok(Self { file, listener })
    }

    pub fn path(&self) -> &UnixPath {
        &self.file.path
    }

    /// Accepts the next connection.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub async fn accept(&self) -> io::Result<UnixConnection> {
        let (io, _) = self.listener.accept().await?;
        Ok(UnixConnection::new(io))
    }
}

/// Locks a socket's folder against other servers that start in it, until the returned file is dropped.
async fn lock_folder(path: &UnixPath) -> Result<File> {
    let folder = path.folder().to_path_buf();
    let lock = move || File::open(&folder).and_then(|file| file.lock().map(|()| file));
    let locked = tokio::task::spawn_blocking(lock).await.map_err(Error::internal)?;
    locked.map_err(|source| {
        let folder = path.folder().display();
        Error::invalid(format!("cannot listen on {path}: {folder} must be a folder that can be read: {source}"))
    })
}

/// Removes the socket file of a server that does not run any more.
async fn remove_stale(path: &UnixPath) -> Result<()> {
    let cannot = |source| cannot_listen(path, source);
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(cannot)?,
    };
    if !found.file_type().is_socket() {
        return Err(Error::invalid(format!(
            "cannot listen on {path}: this file is not a socket; remove it, or choose another path"
        )));
    }
    match UnixStream::connect(path).await.map_err(|error| (error.kind(), error)) {
        Err((io::ErrorKind::ConnectionRefused, _)) => {
            tracing::info!(%path, "replacing the socket of a server that does not run any more");
            std::fs::remove_file(path).map_err(cannot)
        }
        // `WouldBlock`: the server's queue of waiting connections is full.
        Ok(_) | Err((io::ErrorKind::WouldBlock, _)) => {
            Err(Error::invalid(format!("another server listens on {path}; stop it, or choose another path")))
        }
        Err((_, source)) => Err(Error::invalid(format!(
            "cannot listen on {path}: cannot check whether another server listens there: {source}"
        ))),
    }
}

fn cannot_listen(path: &UnixPath, source: io::Error) -> Error {
    Error::invalid(format!("cannot listen on {path}: {source}"))
}

/// The file of a socket. Dropping it removes the file, unless another file is at its path by then.
struct SocketFile {
    path: UnixPath,
    id: FileId,
}

/// The device and inode numbers of a file.
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
            // If this fails, the next server replaces the file, or reports why it cannot.
            std::fs::remove_file(&self.path).ok();
        }
    }
}

fn file_id(path: &UnixPath) -> io::Result<FileId> {
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}
